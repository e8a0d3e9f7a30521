// Updates weights whose states lie in 8 bits: a warp takes a block, each lane four neighbouring elements of
// it.
#include "cuda/device.cuh"
#include "cuda/philox.cuh"
#include "eight_bits.hpp"
#include "optimizer/cuda.hpp"
#include "update_rule.hpp"

namespace prun::cuda {
namespace {

inline constexpr int threads = 256, warps = threads / 32, each = 4;
static_assert(32 * each == eight_bit_block);

// Holds the words by which the lane's four elements, from number `i` of the tensor's part on, are rounded.
struct FourWords {
  std::uint32_t word[each];

  __device__ FourWords(const TensorElements& numbers, const double* seed, const double* step,
                       std::int64_t i) {
    const auto all = static_cast<std::uint64_t>(*seed);
    const PhiloxKey key{static_cast<std::uint32_t>(all), static_cast<std::uint32_t>(all >> 32)};
    const std::uint64_t stream = stream_of(numbers.name, *step);
    for (int l = 0; l < each; ++l) {
      const auto at = static_cast<std::uint64_t>(numbers.number(i + l));
      const std::uint64_t quarter = at / 4;
      const PhiloxBlock four =
          philox({{static_cast<std::uint32_t>(quarter), static_cast<std::uint32_t>(quarter >> 32),
                   static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                 key);
      word[l] = at % 4 == 0   ? four.word[0]
                : at % 4 == 1 ? four.word[1]
                : at % 4 == 2 ? four.word[2]
                              : four.word[3];
    }
  }
};

struct Larger {
  __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

// Each lane reads the scale that it writes, so that no lane writes what another may read.
__device__ float scale_before(const float* scale) {
  return warp_fold(threadIdx.x % 32 == 0 ? *scale : 0.0f, Larger());
}

// Returns the block's scale, from the values of its lanes.
__device__ float scale_of(const float (&values)[each]) {
  float largest = 0;
#pragma unroll
  for (int l = 0; l < each; ++l) largest = Larger()(largest, fabsf(values[l]));
  return block_scale(warp_fold(largest, Larger()));
}

template <bool is_signed>
__device__ void load_four(const std::uint8_t* codes, float scale, float (&values)[each]) {
  const std::uint32_t four = *reinterpret_cast<const std::uint32_t*>(codes);
#pragma unroll
  for (int l = 0; l < each; ++l) {
    const auto code = static_cast<std::uint8_t>(four >> 8 * l);
    values[l] = is_signed ? signed_value(code, scale) : unsigned_value(code, scale);
  }
}

template <bool is_signed>
__device__ void keep_four(std::uint8_t* codes, float* scale, const float (&values)[each],
                          const FourWords& words) {
  const float own = scale_of(values), inverse = inverse_of(own);
  std::uint32_t four = 0;
#pragma unroll
  for (int l = 0; l < each; ++l) {
    const std::uint8_t code = is_signed ? signed_code(values[l], inverse, first_chance(words.word[l]))
                                        : unsigned_code(values[l], inverse, second_chance(words.word[l]));
    four |= static_cast<std::uint32_t>(code) << 8 * l;
  }
  *reinterpret_cast<std::uint32_t*>(codes) = four;
  if (threadIdx.x % 32 == 0) *scale = own;
}

template <class Types>
__device__ float weight_at(const EightBitAdamTensor<Types>& t, std::int64_t i) {
  if constexpr (Types::split)
    return joined_halves(t.parameter[i].bits, t.master[i]);
  else if constexpr (Types::has_master)
    return t.master[i];
  else
    return load_lanes<1>(t.parameter + i)[0];
}

template <class Types>
__device__ void keep_weight(const EightBitAdamTensor<Types>& t, std::int64_t i, float value,
                            std::uint32_t word) {
  if constexpr (Types::split)
    t.master[i] = low_half(value);
  else if constexpr (Types::has_master)
    t.master[i] = __uint_as_float(master_bits(value));
  if constexpr (Types::chancy_weights)
    t.parameter[i].bits = rounded_by(weight_chance(word), value);
  else if constexpr (std::is_same_v<typename Types::Parameter, bf16>)
    t.parameter[i].bits = rounded_half(value);
  else
    store(t.parameter + i, value);
}

template <class Types>
__global__ __launch_bounds__(threads) void adamw_kernel(EightBitAdamTensor<Types> t, AdamSettings settings) {
  __shared__ AdamBias shared;
  if (*settings.keep == 0) return;
  if (threadIdx.x == 0) shared = AdamBias(settings.beta1, settings.beta2, *settings.step);
  __syncthreads();
  const AdamBias bias = shared;
  AdamStep<float> step(settings.beta1, settings.beta2, settings.eps, *settings.clip, bias);
  step.choose(Ieee::mul(*settings.lr, t.lr_scale), t.decay, bias);
  const std::int64_t blocks = t.elements / eight_bit_block;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32; b < blocks;
       b += static_cast<std::int64_t>(gridDim.x) * warps) {
    const std::int64_t i = b * eight_bit_block + threadIdx.x % 32 * each;
    const FourWords words(t.numbers, settings.seed, settings.step, i);
    float mean[each], square[each];
    load_four<true>(t.m + i, scale_before(t.m_scale + b), mean);
    load_four<false>(t.v + i, scale_before(t.v_scale + b), square);
#pragma unroll
    for (int l = 0; l < each; ++l) {
      const float gradient = load_lanes<1>(t.gradient + i + l)[0];
      keep_weight(t, i + l, step.update(weight_at(t, i + l), gradient, mean[l], square[l]), words.word[l]);
    }
    keep_four<true>(t.m + i, t.m_scale + b, mean, words);
    keep_four<false>(t.v + i, t.v_scale + b, square, words);
  }
}

template <class Gradient>
__global__ __launch_bounds__(threads) void momentum_kernel(EightBitMomentumTensor<Gradient> t,
                                                           MomentumSettings settings) {
  const bool keep = *settings.keep != 0;
  const MomentumStep<float> step(settings.now, settings.later, settings.sign, *settings.clip);
  const std::int64_t blocks = t.elements / eight_bit_block;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32; b < blocks;
       b += static_cast<std::int64_t>(gridDim.x) * warps) {
    const std::int64_t i = b * eight_bit_block + threadIdx.x % 32 * each;
    if (!keep) {
      for (int l = 0; l < each; ++l) t.direction[i + l] = 0;
      continue;
    }
    float mean[each];
    load_four<true>(t.state + i, scale_before(t.scale + b), mean);
#pragma unroll
    for (int l = 0; l < each; ++l)
      t.direction[i + l] = step.direction(load_lanes<1>(t.gradient + i + l)[0], mean[l]);
    keep_four<true>(t.state + i, t.scale + b, mean, FourWords(t.numbers, settings.seed, settings.step, i));
  }
}

unsigned blocks_for(std::int64_t elements) {
  const std::int64_t all = (elements / eight_bit_block + warps - 1) / warps;
  return grid_of(std::max<std::int64_t>(1, std::min<std::int64_t>(all, 8 * multiprocessors())));
}

}  // namespace

template <class Types>
void adamw_in_8_bits(const EightBitAdamTensor<Types>& tensor, const AdamSettings& settings, Stream stream) {
  adamw_kernel<Types><<<blocks_for(tensor.elements), threads, 0, stream>>>(tensor, settings);
  check_launch("adamw in 8 bits");
}

template <class Gradient>
void momentum_in_8_bits(const EightBitMomentumTensor<Gradient>& tensor, const MomentumSettings& settings,
                        Stream stream) {
  momentum_kernel<Gradient><<<blocks_for(tensor.elements), threads, 0, stream>>>(tensor, settings);
  check_launch("momentum in 8 bits");
}

#define PRUN_ADAMW(...)                                    \
  template void adamw_in_8_bits<UpdateTypes<__VA_ARGS__>>( \
      const EightBitAdamTensor<UpdateTypes<__VA_ARGS__>>&, const AdamSettings&, Stream)
PRUN_ADAMW(float, void, float, float);
PRUN_ADAMW(f16, float, float, float);
PRUN_ADAMW(bf16, void, float, float);
PRUN_ADAMW(bf16, float, float, float);
PRUN_ADAMW(bf16, std::uint16_t, float, float);
PRUN_ADAMW(bf16, void, bf16, float);
PRUN_ADAMW(bf16, float, bf16, float);
PRUN_ADAMW(bf16, std::uint16_t, bf16, float);
template void momentum_in_8_bits<float>(const EightBitMomentumTensor<float>&, const MomentumSettings&,
                                        Stream);
template void momentum_in_8_bits<bf16>(const EightBitMomentumTensor<bf16>&, const MomentumSettings&, Stream);

}  // namespace prun::cuda
