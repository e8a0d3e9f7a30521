// In place of kernels/cuda/async.cuh, whose instructions are a GPU's. A copy happens when it is waited for,
// and not before.
#pragma once

#include "tests/simt/machine.hpp"

namespace prun::cuda {

inline void copy_async(void* shared, const void* global) { simt::start_copy(shared, global, 16); }
inline void copy_or_clear_async(void* shared, const void* global, bool there) {
  simt::start_copy(shared, there ? global : nullptr, 16);
}
inline void copy_word_async(void* shared, const void* global) { simt::start_copy(shared, global, 4); }
inline void fetch(const void*) {}
inline void commit_copies() { simt::end_copy_group(); }

template <int pending>
void wait_copies() {
  simt::finish_copies(pending);
}

}  // namespace prun::cuda
