// Holds what the kernels of this folder are built from: packs of neighbouring values that move in 16-byte
// accesses, sums over a block in a fixed order, and the host's side of a launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "cuda/check.hpp"
#include "cuda/launch.hpp"

namespace prun::cuda {

// Holds N neighbouring values as they are in memory.
template <class T, int N>
struct Pack {
  static constexpr int bytes = N * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<bytes % 4 == 0, std::uint32_t, std::uint16_t>;
  Word word[bytes / static_cast<int>(sizeof(Word))];
};

// Holds N values to compute with.
template <class C, int N>
struct Lanes {
  C of[N];
  __device__ C& operator[](int i) { return of[i]; }
  __device__ const C& operator[](int i) const { return of[i]; }
};

// A chunk has as many values of the widest type as 16 bytes hold.
template <class... T>
inline constexpr int chunk = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  using P = Pack<T, N>;
  P p;
  if constexpr (P::bytes % 16 == 0) {
#pragma unroll
    for (int k = 0; k < P::bytes / 16; ++k) {
      const uint4 v = reinterpret_cast<const uint4*>(from)[k];
      p.word[4 * k] = v.x, p.word[4 * k + 1] = v.y, p.word[4 * k + 2] = v.z, p.word[4 * k + 3] = v.w;
    }
  } else if constexpr (P::bytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    p.word[0] = v.x, p.word[1] = v.y;
  } else {
    static_assert(P::bytes == sizeof(typename P::Word));
    p.word[0] = *reinterpret_cast<const typename P::Word*>(from);
  }
  return p;
}

template <class T, int N>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& p) {
  using P = Pack<T, N>;
  if constexpr (P::bytes % 16 == 0) {
#pragma unroll
    for (int k = 0; k < P::bytes / 16; ++k)
      reinterpret_cast<uint4*>(to)[k] =
          make_uint4(p.word[4 * k], p.word[4 * k + 1], p.word[4 * k + 2], p.word[4 * k + 3]);
  } else if constexpr (P::bytes == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(p.word[0], p.word[1]);
  } else {
    *reinterpret_cast<typename P::Word*>(to) = p.word[0];
  }
}

template <class T, int N>
__device__ __forceinline__ Lanes<Compute<T>, N> unpack(const Pack<T, N>& p) {
  Lanes<Compute<T>, N> x;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (std::is_same_v<T, double>)
      x[i] = __hiloint2double(static_cast<int>(p.word[2 * i + 1]), static_cast<int>(p.word[2 * i]));
    else if constexpr (std::is_same_v<T, float>)
      x[i] = __uint_as_float(p.word[i]);
    else if constexpr (std::is_same_v<T, f16> && N == 1)
      x[i] = __half2float(__ushort_as_half(p.word[0]));
    else if constexpr (std::is_same_v<T, f16>)
      x[i] = __half2float(__ushort_as_half(static_cast<std::uint16_t>(p.word[i / 2] >> (i % 2 * 16))));
    else if constexpr (N == 1)
      x[i] = __uint_as_float(static_cast<std::uint32_t>(p.word[0]) << 16);
    else
      x[i] = __uint_as_float(i % 2 ? p.word[i / 2] & 0xffff0000u : p.word[i / 2] << 16);
  }
  return x;
}

// Rounds to T, to nearest even.
template <class T, class C, int N>
__device__ __forceinline__ Pack<T, N> pack(const Lanes<C, N>& x) {
  Pack<T, N> p;
  if constexpr (std::is_same_v<T, double>) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      p.word[2 * i] = static_cast<std::uint32_t>(__double2loint(x[i]));
      p.word[2 * i + 1] = static_cast<std::uint32_t>(__double2hiint(x[i]));
    }
  } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < N; ++i) p.word[i] = __float_as_uint(static_cast<float>(x[i]));
  } else if constexpr (std::is_same_v<T, f16> && N == 1) {
    p.word[0] = __half_as_ushort(__float2half_rn(static_cast<float>(x[0])));
  } else if constexpr (std::is_same_v<T, f16>) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const __half2 pair = __floats2half2_rn(static_cast<float>(x[i]), static_cast<float>(x[i + 1]));
      p.word[i / 2] = __half_as_ushort(pair.x) | static_cast<std::uint32_t>(__half_as_ushort(pair.y)) << 16;
    }
  } else if constexpr (N == 1) {
    p.word[0] = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(x[0])));
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(static_cast<float>(x[i]), static_cast<float>(x[i + 1]));
      p.word[i / 2] = __bfloat16_as_ushort(pair.x) | static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y))
                                                         << 16;
    }
  }
  return p;
}

template <class T>
__device__ __forceinline__ Compute<T> load(const T* from) {
  return unpack(load_pack<1>(from))[0];
}

template <class T, class C>
__device__ __forceinline__ void store(T* to, C value) {
  store_pack(to, pack<T>(Lanes<C, 1>{{value}}));
}

template <int N, class T>
__device__ __forceinline__ Lanes<Compute<T>, N> load_lanes(const T* from) {
  return unpack(load_pack<N>(from));
}

template <class T, class C, int N>
__device__ __forceinline__ void store_lanes(T* to, const Lanes<C, N>& x) {
  store_pack(to, pack<T>(x));
}

// ---------------------------------------------------------------- sums in a fixed order
struct Add {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};

// NaN is passed over, as kernels/cpu does: it shows in the sum of exponentials.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

template <class C, class Combine>
__device__ __forceinline__ C warp_fold(C x, Combine combine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

// Returns the same result in every thread of a block of whole warps. `scratch`, 32 values of shared memory,
// must not be in use by an earlier fold that a thread of the block may still be reading.
template <class C, class Combine>
__device__ __forceinline__ C block_fold(C x, C neutral, Combine combine, C* scratch) {
  x = warp_fold(x, combine);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warps == 1) return x;
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_fold(lane < warps ? scratch[lane] : neutral, combine);
}

// ---------------------------------------------------------------- the host's side
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Says whether 16-byte accesses may be used on all of these; a null pointer is not used at all.
inline bool aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return false;
  return true;
}

// Calls launch with the chunk that these pointers and this width allow.
template <class T, class Launch>
void with_chunk(std::int64_t width, std::initializer_list<const void*> pointers, Launch launch) {
  if (width % chunk<T> == 0 && aligned(pointers))
    launch(std::integral_constant<int, chunk<T>>());
  else
    launch(std::integral_constant<int, 1>());
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

// Workspaces are counted with this, where no device may be at hand: it is more than any has.
inline constexpr int most_multiprocessors = 192;

// Returns the multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return std::min(count, most_multiprocessors);
}

inline unsigned grid_of(std::int64_t blocks) {
  PRUN_CHECK(blocks > 0 && blocks < (std::int64_t{1} << 31), "a grid of ", blocks, " blocks");
  return static_cast<unsigned>(blocks);
}

// Is a grid over rows of `units` neighbouring units of work, with a thread for each unit of each row. The
// kernel's row is blockIdx.x * blockDim.y + threadIdx.y, its unit blockIdx.y * blockDim.x + threadIdx.x.
struct RowGrid {
  dim3 grid, block;

  RowGrid(std::int64_t rows, std::int64_t units) {
    std::int64_t wide = 32;
    while (wide < 256 && wide < units) wide *= 2;
    const std::int64_t high = 256 / wide;
    block = dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high));
    grid = dim3(grid_of(ceil_div(rows, high)), grid_of(ceil_div(units, wide)));
    PRUN_CHECK(rows < (std::int64_t{1} << 31) && grid.y < 65536, rows, " rows of ", units, " units");
  }
};

}  // namespace prun::cuda
