// Finds the slots of a head group (its queries, one key, one value): packed, in two or in three tensors.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

template <class T>
struct Together {
  T* x;
  __device__ __forceinline__ T* at(std::int64_t row, int slot, int packed, int width) const {
    return x + (row * packed + slot) * width;
  }
};

// Has queries in one tensor, keys and values in another.
template <class T>
struct InTwo {
  T *first, *last;
  __device__ __forceinline__ T* at(std::int64_t row, int slot, int packed, int width) const {
    if (slot < packed - 2) return first + (row * (packed - 2) + slot) * width;
    return last + (row * 2 + slot - (packed - 2)) * width;
  }
};

template <class T>
struct Apart {
  T *q, *k, *v;
  __device__ __forceinline__ T* at(std::int64_t row, int slot, int packed, int width) const {
    if (slot < packed - 2) return q + (row * (packed - 2) + slot) * width;
    return (slot == packed - 2 ? k : v) + row * width;
  }
};

}  // namespace prun::cuda
