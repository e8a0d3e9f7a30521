// Declares gates of outputs, each of an element, and how slots and their gates come apart.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

template <class T>
void output_gate(const T* x, const T* gate, T* y, std::int64_t count, bool silu, Stream stream);
template <class T>
void output_gate_grad(const T* dy, const T* x, const T* gate, T* dgate, std::int64_t count, bool silu,
                      Stream stream);

// x has slots of `width`, in pairs of one and its gate.
template <class T>
void split_gate(const T* x, T* y, T* gate, std::int64_t slots, std::int64_t width, Stream stream);
template <class T>
void join_gate(const T* y, const T* gate, T* x, std::int64_t slots, std::int64_t width, Stream stream);

}  // namespace prun::cuda
