// A device that is the host: it runs the kernels of kernels/cuda as compiled by the host's compiler, block
// after block on one core, each thread of a block until it waits for others. So kernels are tested where
// there is no GPU, with what a GPU would not say: barriers that not all threads reach, and memory that two
// threads use without one (watch.hpp). A launch in which that happens fails, and the error names file and
// line.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <source_location>
#include <string>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 : uint3 {
  dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : uint3{width, height, depth} {}
};

namespace prun::simt {

using Place = std::source_location;

inline constexpr int warp = 32;
inline constexpr std::size_t most_shared = 227 * 1024;  // of a block

// Where a block's dynamic shared memory lies.
alignas(16) extern unsigned char dynamic_shared[most_shared];

// ---------------------------------------------------------------- what a kernel is told and calls
// A thread's own numbers do not change while it runs: so the compiler may ask for them once.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) uint3 block_dim();
__attribute__((const)) uint3 grid_dim();

// All threads of the block, at the same place.
void barrier(Place where);
// What each lane of the warp has brought, until this one brings the next. All lanes, at the same place.
using Lanes = const std::uint64_t (&)[warp];
Lanes bring(std::uint64_t mine, Place where);
// The number of the calling thread in its warp.
int lane();
// The number that the lane has whose place differs in the bits of `distance`.
inline std::uint64_t exchange(std::uint64_t mine, int distance, Place where) {
  return bring(mine, where)[lane() ^ distance];
}
double add_atomically(double* to, double value);
unsigned long long raise_atomically(unsigned long long* to, unsigned long long value);

// A thread's copies, which happen when it waits until at most so many of its groups are under way.
// From null: of zeros.
void start_copy(void* to, const void* from, std::size_t bytes);
void end_copy_group();
void finish_copies(int groups_left);

// ---------------------------------------------------------------- launches
struct Body {
  void (*call)(const void* kernel);
  const void* kernel;
};
void run(dim3 grid, dim3 block, std::size_t shared, Body body, Place where);

// What the first launch that failed since this was called has done wrong; empty: none has.
std::string take_failure();

// What kernel<<<grid, block, shared, stream>>>(…) becomes (cmake/prun_simt.cmake).
template <class Kernel>
void launch(dim3 grid, dim3 block, std::size_t shared, cudaStream_t, const Kernel& kernel,
            Place where = Place::current()) {
  run(grid, block, shared, {[](const void* k) { (*static_cast<const Kernel*>(k))(); }, &kernel}, where);
}

}  // namespace prun::simt
