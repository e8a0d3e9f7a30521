// Keeps rows of bf16 or fp16 in shared memory in the form that tensor cores take.
#pragma once

#include "prun/types.hpp"

namespace prun::cuda {

// Threads are counted without a sign, so that a division by a power of two is a shift.
__device__ __forceinline__ int thread_over(unsigned n) { return static_cast<int>(threadIdx.x / n); }
__device__ __forceinline__ int thread_modulo(unsigned n) { return static_cast<int>(threadIdx.x % n); }

// Describes rows in shared memory. Chunks of 16 bytes have changed places in each row, so that eight rows'
// chunks of one column are in different banks.
template <int width, class T = bf16>
struct SharedRows {
  T* data;

  __device__ T* at(int row, int chunk) const { return data + row * width + (chunk ^ (row & 7)) * 8; }
  // These return the matrices of 16 rows from `row` on, a multiple of 8, and of 16 channels from 8 * chunk
  // on, an even one, as load_matrices() wants them for the left factor of a product, and for the right one
  // where its rows are columns.
  __device__ const T* left(int row, int chunk) const {
    return matrix(row, chunk, thread_modulo(16), thread_modulo(32) / 16);
  }
  __device__ const T* right(int row, int chunk) const {
    return matrix(row, chunk, thread_modulo(32) / 16 * 8 + thread_modulo(8), thread_modulo(16) / 8);
  }

 private:
  // The lane's offset is the same wherever the matrices lie, but for a chunk's bits.
  __device__ const T* matrix(int row, int chunk, int lane_row, int lane_chunk) const {
    const int offset = lane_row * width + (lane_chunk ^ thread_modulo(8)) * 8;
    return data + row * width + (offset ^ chunk * 8);
  }
};

}  // namespace prun::cuda
