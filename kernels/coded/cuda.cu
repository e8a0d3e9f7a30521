#include "coded/cuda.hpp"

#include "cuda/device.cuh"
#include "number_codes.hpp"

namespace prun::cuda {
namespace {

// A warp takes a block, each lane four neighbouring elements of it: two lanes share a word of codes of 4
// bits, eight lanes one of codes of one bit.
inline constexpr int threads = 256, warps = threads / 32, each = 4;
static_assert(32 * each == code_block);

// Is a block as words: its scale, then its codes.
template <Codes form>
inline constexpr std::int64_t block_words = code_block_bytes(bits_of(form)) / 4;

struct Largest {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a < b ? b : a;
  }
};

// Returns NaN where any number of the block is NaN or infinite.
template <class C>
__device__ C largest_of(const Lanes<C, each>& x) {
  C largest = 0, sum = 0;
#pragma unroll
  for (int l = 0; l < each; ++l) {
    const C size = x[l] < C(0) ? -x[l] : x[l];
    largest = Largest()(largest, size);
    sum += size - size;
  }
  return warp_fold(largest, Largest()) + warp_fold(sum, Add());
}

template <class C>
__device__ double squares_of(const Lanes<C, each>& x) {
  double sum = 0;
#pragma unroll
  for (int l = 0; l < each; ++l) sum = sum + product(static_cast<double>(x[l]), static_cast<double>(x[l]));
  return warp_fold(sum, Add());
}

template <Codes form, class C>
__device__ float scale_of(const Lanes<C, each>& x) {
  if constexpr (form == Codes::sign)
    return sign_scale(squares_of(x));
  else
    return code_scale<form>(largest_of(x));
}

// Loads and stores four neighbouring values, aligned to four of them or not.
template <class T>
__device__ Lanes<Compute<T>, each> load_four(const T* from) {
  Lanes<Compute<T>, each> x;
#pragma unroll
  for (int l = 0; l < each; ++l) x[l] = load(from + l);
  return x;
}

// Counts how many lanes share a word.
template <int bits>
inline constexpr int sharers = 32 / (bits * each);

template <int bits>
__device__ void store_codes(std::uint32_t* block, const int (&codes)[each]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t word = 0;
#pragma unroll
  for (int l = 0; l < each; ++l) word |= code_at<bits>(codes[l], l);
  word <<= lane % sharers<bits> * (bits * each % 32);
#pragma unroll
  for (int other = 1; other < sharers<bits>; other *= 2) word |= __shfl_xor_sync(0xffffffffu, word, other);
  if (lane % sharers<bits> == 0) block[1 + lane / sharers<bits>] = word;
}

template <Codes form, class T>
__global__ __launch_bounds__(threads) void encode_kernel(const T* x, std::uint32_t* codes,
                                                         Feedback<Compute<T>> feedback, std::int64_t blocks) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32; b < blocks;
       b += static_cast<std::int64_t>(gridDim.x) * warps) {
    Lanes<Compute<T>, each> numbers = load_four(x + b * code_block + lane * each);
    Compute<T>* const error = feedback.error ? feedback.error + b * code_block + lane * each : nullptr;
#pragma unroll
    for (int l = 0; l < each; ++l)
      if (error) numbers[l] = numbers[l] + error[l];
    const float scale = scale_of<form>(numbers);
    int four[each];
#pragma unroll
    for (int l = 0; l < each; ++l) four[l] = scale > 0 ? code_of_number<form>(numbers[l], scale) : 0;
    std::uint32_t* const block = codes + b * block_words<form>;
    if (lane == 0) block[0] = __float_as_uint(scale);
    store_codes<bits_of(form)>(block, four);
    if (!error || *feedback.keep == 0) continue;
#pragma unroll
    for (int l = 0; l < each; ++l) error[l] = numbers[l] - number_of_code<form, Compute<T>>(four[l], scale);
  }
}

template <Codes form, class C>
__device__ Lanes<C, each> decode_four(const std::uint32_t* block) {
  constexpr int bits = bits_of(form);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float scale = __uint_as_float(block[0]);
  const std::uint32_t word = block[1 + lane / sharers<bits>] >> (lane % sharers<bits> * (bits * each % 32));
  Lanes<C, each> x;
#pragma unroll
  for (int l = 0; l < each; ++l) x[l] = number_of_code<form, C>(code_in<bits>(word, l), scale);
  return x;
}

template <Codes form, class T>
__global__ __launch_bounds__(threads) void sum_decoded_kernel(const std::uint32_t* codes, T* y,
                                                              std::int64_t blocks, std::int64_t summands) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32; b < blocks;
       b += static_cast<std::int64_t>(gridDim.x) * warps) {
    Lanes<C, each> sum = decode_four<form, C>(codes + b * block_words<form>);
    for (std::int64_t s = 1; s < summands; ++s) {
      const Lanes<C, each> next = decode_four<form, C>(codes + (s * blocks + b) * block_words<form>);
#pragma unroll
      for (int l = 0; l < each; ++l) sum[l] = sum[l] + next[l];
    }
#pragma unroll
    for (int l = 0; l < each; ++l) store(y + b * code_block + lane * each + l, sum[l]);
  }
}

unsigned grid_for(std::int64_t blocks) {
  return grid_of(
      std::max<std::int64_t>(1, std::min<std::int64_t>(ceil_div(blocks, warps), 8 * multiprocessors())));
}

template <class Launch>
void with_form(Codes form, Launch launch) {
  switch (form) {
    case Codes::int8: return launch.template operator()<Codes::int8>();
    case Codes::int4: return launch.template operator()<Codes::int4>();
    case Codes::sign: return launch.template operator()<Codes::sign>();
    case Codes::e4m3: return launch.template operator()<Codes::e4m3>();
  }
}

}  // namespace

template <class T>
void encode(const T* x, void* codes, std::int64_t elements, Codes form, Feedback<Compute<T>> feedback,
            Stream stream) {
  const std::int64_t blocks = elements / code_block;
  if (blocks == 0) return;
  with_form(form, [&]<Codes codes_of>() {
    encode_kernel<codes_of>
        <<<grid_for(blocks), threads, 0, stream>>>(x, static_cast<std::uint32_t*>(codes), feedback, blocks);
  });
  check_launch("encode");
}

template <class T>
void sum_decoded(const void* codes, T* y, std::int64_t elements, std::int64_t summands, Codes form,
                 Stream stream) {
  const std::int64_t blocks = elements / code_block;
  if (blocks == 0) return;
  with_form(form, [&]<Codes codes_of>() {
    sum_decoded_kernel<codes_of><<<grid_for(blocks), threads, 0, stream>>>(
        static_cast<const std::uint32_t*>(codes), y, blocks, summands);
  });
  check_launch("sum_decoded");
}

#define PRUN_CODED(T)                                                                          \
  template void encode<T>(const T*, void*, std::int64_t, Codes, Feedback<Compute<T>>, Stream); \
  template void sum_decoded<T>(const void*, T*, std::int64_t, std::int64_t, Codes, Stream)
PRUN_CODED(double);
PRUN_CODED(float);
PRUN_CODED(bf16);
PRUN_CODED(f16);

}  // namespace prun::cuda
