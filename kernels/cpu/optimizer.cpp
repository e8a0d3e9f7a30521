// Implements the updates adamw, sgd, momentum and average_weights, each in one pass over memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/optimizer_operands.hpp"
#include "cpu/stochastic_draws.hpp"
#include "cpu/values.hpp"
#include "eight_bits.hpp"
#include "update_rule.hpp"
#include "update_types.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// ---------------------------------------------------------------- what is updated, and how it is stored

template <class C, class T>
C weight_in(const T& parameter) {
  return static_cast<C>(load(parameter));
}
template <class C, class T, class Master>
C weight_in(const T& parameter, const Master& master) {
  if constexpr (std::is_same_v<Master, std::uint16_t>)
    return joined_halves(parameter.bits, master);
  else
    return master;
}

template <class T, class C>
void keep_weight(C value, std::uint32_t chance, T& parameter) {
  if constexpr (std::is_same_v<T, bf16>)
    parameter.bits = rounded_by(chance, value);
  else
    parameter = static_cast<T>(value);
}
template <class T, class Master, class C>
void keep_weight(C value, std::uint32_t, T& parameter, Master& master) {
  if constexpr (std::is_same_v<T, bf16>)
    parameter.bits = rounded_half(static_cast<float>(value));
  else
    store(parameter, value);
  if constexpr (std::is_same_v<Master, std::uint16_t>)
    master = low_half(value);
  else if constexpr (std::is_same_v<Master, float>)
    master = std::bit_cast<float>(master_bits(value));
  else
    master = value;
}

template <class State, class C>
void keep_state(C value, std::uint32_t chance, State& state) {
  if constexpr (std::is_same_v<State, bf16>)
    state.bits = rounded_by(chance, value);
  else
    state = static_cast<State>(value);
}

// Calls body(words, arrays + i...) for every block_lanes elements that belong to a tensor, the last ones
// padded.
template <class Body, class... T>
void chancy_blocks(const KernelArgs& args, const Workers& workers, const ChanceKey& key, const Body& body,
                   T*... arrays) {
  check_updates(args);
  for (const TensorElements& part : std::span(args.updates, static_cast<std::size_t>(args.update_count))) {
    const Draws draws(key.seed, stream_of(part.name, key.step));
    const auto all_from = [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t words[block_lanes] = {};
      for (std::int64_t i = begin; i < end; i += block_lanes) {
        const std::int64_t n = std::min<std::int64_t>(block_lanes, end - i);
        draw_elements(draws, part, i, n, words);
        for_blocks(
            n, [&](auto*... block) { body(words, block...); }, (arrays + part.begin + i)...);
      }
    };
    parallel_ranges(workers, part.count, 64 * block_lanes, all_from);
  }
}

// Does the same for every element where nothing rounds by chance. `step` and `seed` are places of operands.
template <class Types, class Body, class... T>
void update_blocks(const KernelArgs& args, const KernelContext& context, int step, int seed, const Body& body,
                   T*... arrays) {
  if constexpr (Types::chancy_states || Types::chancy_weights) {
    const ChanceKey key(args.operands[seed], args.operands[step]);
    chancy_blocks(args, *context.workers, key, body, arrays...);
  } else {
    constexpr std::uint32_t none[block_lanes] = {};
    parallel_blocks(
        *context.workers, args.operands[0].elements(), [&](auto*... block) { body(none, block...); },
        arrays...);
  }
}

// Calls pass(parameter) or pass(parameter, master).
template <class Types, class Pass>
void with_weights(const KernelArgs& args, const Pass& pass) {
  auto* parameter = args.operands[0].as<typename Types::Parameter>();
  if constexpr (Types::has_master)
    pass(parameter, args.operands[1].as<typename Types::Master>());
  else
    pass(parameter);
}

// ---------------------------------------------------------------- adamw

// Takes the step of the one tensor that an op updates.
template <class C>
AdamStep<C> adam_step(const KernelArgs& args) {
  const double beta1 = args.attrs[0].f, beta2 = args.attrs[1].f;
  const AdamBias bias(beta1, beta2, scalar(args.operands[6]));
  AdamStep<C> step(beta1, beta2, args.attrs[2].f, scalar(args.operands[7]), bias);
  step.choose(scalar(args.operands[5]) * args.attrs[4].f, args.attrs[3].f, bias);
  return step;
}

template <class Types>
void adamw(const KernelArgs& args, const KernelContext& context) {
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  if (scalar(args.operands[8]) == 0) return;
  const AdamStep<C> step = adam_step<C>(args);
  const auto body = [step](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                           State* __restrict m, State* __restrict v, auto* __restrict... weights) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(load(m[l])), square = static_cast<C>(load(v[l]));
      const C value =
          step.update(weight_in<C>(weights[l]...), static_cast<C>(load(gradient[l])), mean, square);
      keep_state(mean, first_chance(words[l]), m[l]);
      keep_state(square, second_chance(words[l]), v[l]);
      keep_weight(value, weight_chance(words[l]), weights[l]...);
    }
  };
  with_weights<Types>(args, [&](auto*... weights) {
    update_blocks<Types>(args, context, 6, 9, body, args.operands[2].as<const Gradient>(),
                         args.operands[3].as<State>(), args.operands[4].as<State>(), weights...);
  });
}

// ---------------------------------------------------------------- states in 8 bits

constexpr int block = static_cast<int>(eight_bit_block);

// Converts a state's block to floats, and back: it is signed, or never negative.
struct EightBits {
  std::uint8_t* codes;
  float* scales;

  template <bool is_signed>
  void load_block(std::int64_t first, float* values) const {
    const float scale = scales[first / block];
    const std::uint8_t* const from = codes + first;
#pragma omp simd
    for (int l = 0; l < block; ++l)
      values[l] = is_signed ? signed_value(from[l], scale) : unsigned_value(from[l], scale);
  }

  // Compares whole numbers, whose order is that of sizes: a maximum of floats is no vector instruction. A NaN
  // counts as 0.
  static float largest_of(const float* values) {
    constexpr std::int32_t size = 0x7fffffff, infinity = 0x7f800000;
    std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int l = 0; l < block; ++l) {
      const std::int32_t bits = static_cast<std::int32_t>(bits_of(values[l])) & size;
      largest = std::max(largest, bits > infinity ? 0 : bits);
    }
    return float_of(static_cast<std::uint32_t>(largest));
  }

  template <bool is_signed>
  void keep_block(std::int64_t first, const float* values, const std::uint32_t* words) const {
    const float scale = block_scale(largest_of(values)), inverse = inverse_of(scale);
    scales[first / block] = scale;
    std::uint8_t* const to = codes + first;
#pragma omp simd
    for (int l = 0; l < block; ++l)
      to[l] = is_signed ? signed_code(values[l], inverse, first_chance(words[l]))
                        : unsigned_code(values[l], inverse, second_chance(words[l]));
  }
};

// Calls body(first element, words) for every block of the elements that are updated.
template <class Body>
void each_block(const KernelArgs& args, const Workers& workers, const ChanceKey& key, const Body& body) {
  check_updates(args);
  for (const TensorElements& part : std::span(args.updates, static_cast<std::size_t>(args.update_count))) {
    PRUN_CHECK(part.begin % block == 0 && part.count % block == 0, "a part of ", part.count,
               " elements from ", part.begin, " on cuts a block");
    const Draws draws(key.seed, stream_of(part.name, key.step));
    parallel_ranges(workers, part.count / block, 32, [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t words[block];
      for (std::int64_t b = begin; b < end; ++b) {
        for (int l = 0; l < block; l += block_lanes)
          draw_elements(draws, part, b * block + l, block_lanes, words + l);
        body(part.begin + b * block, words);
      }
    });
  }
}

template <class Types>
void adamw_in_8_bits(const KernelArgs& args, const KernelContext& context) {
  using Gradient = typename Types::Gradient;
  if (scalar(args.operands[8]) == 0) return;
  const AdamStep<float> step = adam_step<float>(args);
  const EightBits m{args.operands[3].as<std::uint8_t>(), args.operands[10].as<float>()},
      v{args.operands[4].as<std::uint8_t>(), args.operands[11].as<float>()};
  const auto* const gradients = args.operands[2].as<const Gradient>();
  with_weights<Types>(args, [&](auto*... all) {
    const auto update = [&](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                            float* __restrict mean, float* __restrict square, auto* __restrict... weights) {
#pragma omp simd
      for (int l = 0; l < block; ++l) {
        const float value = step.update(weight_in<float>(weights[l]...),
                                        static_cast<float>(load(gradient[l])), mean[l], square[l]);
        keep_weight(value, weight_chance(words[l]), weights[l]...);
      }
    };
    const ChanceKey key(args.operands[9], args.operands[6]);
    each_block(args, *context.workers, key, [&](std::int64_t first, const std::uint32_t* words) {
      float mean[block], square[block];
      m.load_block<true>(first, mean);
      v.load_block<false>(first, square);
      update(words, gradients + first, mean, square, (all + first)...);
      m.keep_block<true>(first, mean, words);
      v.keep_block<false>(first, square, words);
    });
  });
}

template <class Gradient>
void momentum_in_8_bits(const KernelArgs& args, const KernelContext& context) {
  float* const directions = args.operands[3].as<float>();
  std::fill_n(directions, args.operands[3].elements(), 0.0f);
  if (scalar(args.operands[5]) == 0) return;
  const MomentumStep<float> step(args.attrs[0].f, args.attrs[1].f, args.attrs[2].f != 0,
                                 scalar(args.operands[4]));
  const EightBits m{args.operands[2].as<std::uint8_t>(), args.operands[8].as<float>()};
  const auto* const gradients = args.operands[1].as<const Gradient>();
  const ChanceKey key(args.operands[7], args.operands[6]);
  each_block(args, *context.workers, key, [&](std::int64_t first, const std::uint32_t* words) {
    float mean[block];
    m.load_block<true>(first, mean);
    for (int l = 0; l < block; ++l)
      directions[first + l] = step.direction(static_cast<float>(load(gradients[first + l])), mean[l]);
    m.keep_block<true>(first, mean, words);
  });
}

// ---------------------------------------------------------------- sgd

template <class C>
SgdStep<C> sgd_step(const KernelArgs& args) {
  SgdStep<C> step(args.attrs[0].f, args.operands[5].data ? scalar(args.operands[5]) : 1.0);
  step.choose(scalar(args.operands[4]) * args.attrs[2].f, args.attrs[1].f);
  return step;
}

template <class Types>
void sgd(const KernelArgs& args, const KernelContext& context) {
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  if (scalar(args.operands[6]) == 0) return;
  const SgdStep<C> step = sgd_step<C>(args);
  const auto plain = [step](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                            auto* __restrict... weights) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C value = step.update(weight_in<C>(weights[l]...), static_cast<C>(load(gradient[l])));
      keep_weight(value, weight_chance(words[l]), weights[l]...);
    }
  };
  const auto heavy = [step](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                            State* __restrict buffer, auto* __restrict... weights) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(load(buffer[l]));
      const C value = step.update(weight_in<C>(weights[l]...), static_cast<C>(load(gradient[l])), mean);
      keep_state(mean, first_chance(words[l]), buffer[l]);
      keep_weight(value, weight_chance(words[l]), weights[l]...);
    }
  };
  const Gradient* gradient = args.operands[2].as<const Gradient>();
  State* buffer = args.operands[3].as<State>();
  with_weights<Types>(args, [&](auto*... weights) {
    if (buffer)
      update_blocks<Types>(args, context, 7, 8, heavy, gradient, buffer, weights...);
    else
      update_blocks<Types>(args, context, 7, 8, plain, gradient, weights...);
  });
}

// ---------------------------------------------------------------- momentum

template <class Types>
void momentum(const KernelArgs& args, const KernelContext& context) {
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  C* const directions = args.operands[3].as<C>();
  if (scalar(args.operands[5]) == 0) {
    std::fill_n(directions, args.operands[3].elements(), C(0));
    return;
  }
  const MomentumStep<C> step(args.attrs[0].f, args.attrs[1].f, args.attrs[2].f != 0,
                             scalar(args.operands[4]));
  const auto body = [step](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                           State* __restrict m, C* __restrict direction) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(load(m[l]));
      direction[l] = step.direction(static_cast<C>(load(gradient[l])), mean);
      keep_state(mean, first_chance(words[l]), m[l]);
    }
  };
  update_blocks<Types>(args, context, 6, 7, body, args.operands[1].as<const Gradient>(),
                       args.operands[2].as<State>(), directions);
}

// ---------------------------------------------------------------- average

template <class Types>
void average_weights(const KernelArgs& args, const KernelContext& context) {
  using C = typename Types::C;
  if (scalar(args.operands[4]) == 0) return;
  const AverageStep<C> step(args.attrs[0].f, scalar(args.operands[3]));
  const auto body = [step](C* __restrict average, auto* __restrict... weights) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) average[l] = step.update(average[l], weight_in<C>(weights[l]...));
  };
  with_weights<Types>(args, [&](auto*... weights) {
    parallel_blocks(*context.workers, args.operands[0].elements(), body, args.operands[2].as<C>(),
                    weights...);
  });
}

Kernel select_adamw_in_8_bits(const OpShape& s) {
  if (!in_eight_bits(s, 3, 10) || !in_eight_bits(s, 4, 11) || !all_double(s, 5, 10)) return nullptr;
  return choose_update(s, DType::f32, []<class Types>() -> Kernel { return adamw_in_8_bits<Types>; });
}

Kernel select_adamw(const OpShape& s) {
  if (s.operand[3].dtype == DType::u8) return select_adamw_in_8_bits(s);
  const DType state = s.operand[3].dtype;
  if (!same_type(s, {3, 4}) || !all_double(s, 5, 9) || !has_chance(s, state, 6, 9)) return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return adamw<Types>; });
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& s) {
  const bool buffer = s.operand[3].present;
  const DType state = buffer ? s.operand[3].dtype : state_type(s.operand[2]);
  if (s.operand[5].present && !all_double(s, 5, 6)) return nullptr;
  if (!all_double(s, 4, 5) || !all_double(s, 6, 7) || !has_chance(s, state, 7, 8) ||
      (s.attrs[0].f != 0 && !buffer))
    return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return sgd<Types>; });
}

Kernel select_momentum(const OpShape& s) {
  if (!all_double(s, 4, 6)) return nullptr;
  if (s.operand[2].dtype == DType::u8) {
    if (!in_eight_bits(s, 2, 8) || !all_double(s, 6, 8)) return nullptr;
    const DType gradient = s.operand[1].dtype;
    return gradient == DType::f32    ? momentum_in_8_bits<float>
           : gradient == DType::bf16 ? momentum_in_8_bits<bf16>
                                     : nullptr;
  }
  return choose_momentum(s, []<class Types>() -> Kernel { return momentum<Types>; });
}

Kernel select_average_weights(const OpShape& s) {
  if (!all_double(s, 3, 5)) return nullptr;
  return choose_average(s, []<class Types>() -> Kernel { return average_weights<Types>; });
}

}  // namespace

std::vector<KernelDef> optimizer_kernels();
std::vector<KernelDef> optimizer_kernels() {
  return {{"adamw", select_adamw},
          {"sgd", select_sgd},
          {"momentum", select_momentum},
          {"average_weights", select_average_weights}};
}

}  // namespace prun::cpu::PRUN_ISA
