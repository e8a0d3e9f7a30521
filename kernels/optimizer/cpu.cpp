// Implements the updates adamw, sgd, momentum and average_weights, each in one pass over memory, and adamw
// that keeps the old state beside in the same pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/past_caches.hpp"
#include "cpu/values.hpp"
#include "eight_bits.hpp"
#include "optimizer/cpu_draws.hpp"
#include "optimizer/cpu_operands.hpp"
#include "prun/ops/optimizer.hpp"
#include "prun/ops/whole_update.hpp"
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

// Is what an update keeps of the old state: nothing.
struct NothingOld {
  explicit NothingOld(const KernelArgs&) {}
  void keep_padding(const KernelArgs&) const {}
  template <class Update>
  void update(std::int64_t begin, std::int64_t end, const Update& update) const {
    update(begin, end);
  }
};

// Is all that adamw changes. It is kept in pieces that stay in a core's cache until they are updated, so that
// memory is read once.
class OldState {
 public:
  explicit OldState(const KernelArgs& args) {
    const ArgsOf<ops::AdamWKeepingOld> op(args);
    elements_ = op["parameter"].elements();
    sides_ = {side(op["parameter"], op["old_parameter"]), side(op["m"], op["old_m"]),
              side(op["v"], op["old_v"])};
    if (op.has("master")) sides_.back() = side(op["master"], op["old_master"]);
  }

  // Keeps what stands between tensors and behind them, which is not updated.
  void keep_padding(const KernelArgs& args) const {
    std::int64_t end = 0;
    for (const TensorElements& part : std::span(args.updates, static_cast<std::size_t>(args.update_count))) {
      PRUN_CHECK(part.begin >= end, "a part from ", part.begin, " on stands behind one up to ", end);
      keep(end, part.begin);
      end = part.begin + part.count;
    }
    keep(end, elements_);
    order_copies();
  }

  // Calls update(begin, end) for pieces of a range once they are kept.
  template <class Update>
  void update(std::int64_t begin, std::int64_t end, const Update& update) const {
    constexpr std::int64_t piece =
        4 * block_lanes;  // so small that a core copies some while it computes others
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t until = std::min(at + piece, end);
      keep(at, until);
      update(at, until);
    }
    order_copies();
  }

 private:
  struct Side {
    const std::byte* now = nullptr;
    std::byte* old = nullptr;
    std::int64_t size = 0;  // of an element
  };

  static Side side(const Tensor& now, const Tensor& old) {
    return {now.as<const std::byte>(), old.as<std::byte>(), size_of(now.dtype)};
  }

  void keep(std::int64_t begin, std::int64_t end) const {
    for (const Side& side : sides_)
      copy_past_caches(side.now + begin * side.size, side.old + begin * side.size, (end - begin) * side.size);
  }

  std::array<Side, 4> sides_;  // the last is empty without a master copy
  std::int64_t elements_ = 0;
};

// Calls body(words, arrays + i...) for every block_lanes elements that belong to a tensor, the last ones
// padded.
template <class Old, class Body, class... T>
void chancy_blocks(const KernelArgs& args, const Workers& workers, const ChanceKey& key, const Old& old,
                   const Body& body, T*... arrays) {
  check_updates(args);
  old.keep_padding(args);
  for (const TensorElements& part : std::span(args.updates, static_cast<std::size_t>(args.update_count))) {
    const Draws draws(key.seed, stream_of(part.name, key.step));
    const auto all_from = [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t words[block_lanes] = {};
      for (std::int64_t i = begin; i < end; i += block_lanes) {
        const std::int64_t n = std::min<std::int64_t>(block_lanes, end - i);
        draw_elements(draws, part, i - part.begin, n, words);
        for_blocks(
            n, [&](auto*... block) { body(words, block...); }, (arrays + i)...);
      }
    };
    parallel_ranges(workers, part.count, 64 * block_lanes, [&](std::int64_t begin, std::int64_t end) {
      old.update(part.begin + begin, part.begin + end, all_from);
    });
  }
}

// Does the same for every element where nothing rounds by chance.
template <class Types, class Old = NothingOld, class Op, class Body, class... T>
void update_blocks(const ArgsOf<Op>& op, const KernelContext& context, const Body& body, T*... arrays) {
  const Old old(op);
  if constexpr (Types::chancy_states || Types::chancy_weights) {
    const ChanceKey key(op["seed"], op["step"]);
    chancy_blocks(op, *context.workers, key, old, body, arrays...);
  } else {
    constexpr std::uint32_t none[block_lanes] = {};
    const auto all_from = [&](std::int64_t begin, std::int64_t end) {
      for_blocks(
          end - begin, [&](auto*... block) { body(none, block...); }, (arrays + begin)...);
    };
    parallel_ranges(*context.workers, op["parameter"].elements(), 64 * block_lanes,
                    [&](std::int64_t begin, std::int64_t end) { old.update(begin, end, all_from); });
  }
}

// Calls pass(parameter) or pass(parameter, master).
template <class Types, class Op, class Pass>
void with_weights(const ArgsOf<Op>& op, const Pass& pass) {
  auto* parameter = op["parameter"].template as<typename Types::Parameter>();
  if constexpr (Types::has_master)
    pass(parameter, op["master"].template as<typename Types::Master>());
  else
    pass(parameter);
}

// ---------------------------------------------------------------- adamw

// Takes the step of the one tensor that an op updates.
template <class C>
AdamStep<C> adam_step(const ArgsOf<ops::AdamW>& op) {
  const double beta1 = op.real("beta1"), beta2 = op.real("beta2");
  const AdamBias bias(beta1, beta2, scalar(op["step"]));
  AdamStep<C> step(beta1, beta2, op.real("eps"), scalar(op["clip"]), bias);
  step.choose(scalar(op["lr"]) * op.real("lr_scale"), op.real("weight_decay"), bias);
  return step;
}

template <class Types, class Old>
void adamw(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AdamW> op(args);
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  if (scalar(op["keep"]) == 0) return;
  const AdamStep<C> step = adam_step<C>(op);
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
  with_weights<Types>(op, [&](auto*... weights) {
    update_blocks<Types, Old>(op, context, body, op["gradient"].as<const Gradient>(), op["m"].as<State>(),
                              op["v"].as<State>(), weights...);
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
  const ArgsOf<ops::AdamW> op(args);
  using Gradient = typename Types::Gradient;
  if (scalar(op["keep"]) == 0) return;
  const AdamStep<float> step = adam_step<float>(op);
  const EightBits m{op["m"].as<std::uint8_t>(), op["m_scale"].as<float>()},
      v{op["v"].as<std::uint8_t>(), op["v_scale"].as<float>()};
  const auto* const gradients = op["gradient"].as<const Gradient>();
  with_weights<Types>(op, [&](auto*... all) {
    const auto update = [&](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                            float* __restrict mean, float* __restrict square, auto* __restrict... weights) {
#pragma omp simd
      for (int l = 0; l < block; ++l) {
        const float value = step.update(weight_in<float>(weights[l]...),
                                        static_cast<float>(load(gradient[l])), mean[l], square[l]);
        keep_weight(value, weight_chance(words[l]), weights[l]...);
      }
    };
    const ChanceKey key(op["seed"], op["step"]);
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

template <class C>
MomentumStep<C> momentum_step(const ArgsOf<ops::Momentum>& op) {
  return {op.real("now"), op.real("later"), op.real("sign") != 0, scalar(op["clip"])};
}

template <class Gradient>
void momentum_in_8_bits(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Momentum> op(args);
  float* const directions = op["direction"].as<float>();
  std::fill_n(directions, op["direction"].elements(), 0.0f);
  if (scalar(op["keep"]) == 0) return;
  const MomentumStep<float> step = momentum_step<float>(op);
  const EightBits m{op["m"].as<std::uint8_t>(), op["scale"].as<float>()};
  const auto* const gradients = op["gradient"].as<const Gradient>();
  const ChanceKey key(op["seed"], op["step"]);
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
SgdStep<C> sgd_step(const ArgsOf<ops::Sgd>& op) {
  SgdStep<C> step(op.real("momentum"), op.has("clip") ? scalar(op["clip"]) : 1.0);
  step.choose(scalar(op["lr"]) * op.real("lr_scale"), op.real("weight_decay"));
  return step;
}

template <class Types>
void sgd(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Sgd> op(args);
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  if (scalar(op["keep"]) == 0) return;
  const SgdStep<C> step = sgd_step<C>(op);
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
  const Gradient* gradient = op["gradient"].as<const Gradient>();
  State* buffer = op["momentum"].as<State>();
  with_weights<Types>(op, [&](auto*... weights) {
    if (buffer)
      update_blocks<Types>(op, context, heavy, gradient, buffer, weights...);
    else
      update_blocks<Types>(op, context, plain, gradient, weights...);
  });
}

// ---------------------------------------------------------------- momentum

template <class Types>
void momentum(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Momentum> op(args);
  using C = typename Types::C;
  using Gradient = typename Types::Gradient;
  using State = typename Types::State;
  C* const directions = op["direction"].as<C>();
  if (scalar(op["keep"]) == 0) {
    std::fill_n(directions, op["direction"].elements(), C(0));
    return;
  }
  const MomentumStep<C> step = momentum_step<C>(op);
  const auto body = [step](const std::uint32_t* __restrict words, const Gradient* __restrict gradient,
                           State* __restrict m, C* __restrict direction) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(load(m[l]));
      direction[l] = step.direction(static_cast<C>(load(gradient[l])), mean);
      keep_state(mean, first_chance(words[l]), m[l]);
    }
  };
  update_blocks<Types>(op, context, body, op["gradient"].as<const Gradient>(), op["m"].as<State>(),
                       directions);
}

// ---------------------------------------------------------------- average

template <class Types>
void average_weights(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AverageWeights> op(args);
  using C = typename Types::C;
  if (scalar(op["keep"]) == 0) return;
  const AverageStep<C> step(op.real("decay"), scalar(op["step"]));
  const auto body = [step](C* __restrict average, auto* __restrict... weights) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) average[l] = step.update(average[l], weight_in<C>(weights[l]...));
  };
  with_weights<Types>(op, [&](auto*... weights) {
    parallel_blocks(*context.workers, op["parameter"].elements(), body, op["average"].as<C>(), weights...);
  });
}

Kernel select_adamw_in_8_bits(const ShapeOf<ops::AdamW>& s) {
  if (!in_eight_bits(s["m"], s["m_scale"]) || !in_eight_bits(s["v"], s["v_scale"]) ||
      !all_double(s, {"lr", "step", "clip", "keep", "seed"}))
    return nullptr;
  return choose_update(s, DType::f32, []<class Types>() -> Kernel { return adamw_in_8_bits<Types>; });
}

template <class Old>
Kernel select_adamw_of(const ShapeOf<ops::AdamW>& s) {
  const DType state = s["m"].dtype;
  if (!same_type(s, {"m", "v"}) || !all_double(s, {"lr", "step", "clip", "keep"}) || !has_chance(s, state))
    return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return adamw<Types, Old>; });
}

Kernel select_adamw(const OpShape& shape) {
  const ShapeOf<ops::AdamW> s(shape);
  return s["m"].dtype == DType::u8 ? select_adamw_in_8_bits(s) : select_adamw_of<NothingOld>(s);
}

// Its operands are those of adamw, but for scales.
Kernel select_adamw_keeping_old(const OpShape& shape) {
  static_assert(operand_of<ops::AdamW>("seed") == operand_of<ops::AdamWKeepingOld>("seed"));
  return select_adamw_of<OldState>(shape);
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& shape) {
  const ShapeOf<ops::Sgd> s(shape);
  const bool buffer = s.has("momentum");
  const DType state = buffer ? s["momentum"].dtype : state_type(s["gradient"]);
  if (s.has("clip") && !all_double(s, {"clip"})) return nullptr;
  if (!all_double(s, {"lr", "keep"}) || !has_chance(s, state) || (s.real("momentum") != 0 && !buffer))
    return nullptr;
  return choose_update(s, state, []<class Types>() -> Kernel { return sgd<Types>; });
}

Kernel select_momentum(const OpShape& shape) {
  const ShapeOf<ops::Momentum> s(shape);
  if (!all_double(s, {"clip", "keep"})) return nullptr;
  if (s["m"].dtype == DType::u8) {
    if (!in_eight_bits(s["m"], s["scale"]) || !all_double(s, {"step", "seed"})) return nullptr;
    const DType gradient = s["gradient"].dtype;
    return gradient == DType::f32    ? momentum_in_8_bits<float>
           : gradient == DType::bf16 ? momentum_in_8_bits<bf16>
                                     : nullptr;
  }
  return choose_momentum(s, []<class Types>() -> Kernel { return momentum<Types>; });
}

Kernel select_average_weights(const OpShape& shape) {
  const ShapeOf<ops::AverageWeights> s(shape);
  if (!all_double(s, {"step", "keep"})) return nullptr;
  return choose_average(s, []<class Types>() -> Kernel { return average_weights<Types>; });
}

}  // namespace

std::vector<KernelDef> optimizer_kernels();
std::vector<KernelDef> optimizer_kernels() {
  return {{ops::AdamW::kind, select_adamw},
          {ops::AdamWKeepingOld::kind, select_adamw_keeping_old},
          {ops::Sgd::kind, select_sgd},
          {ops::Momentum::kind, select_momentum},
          {ops::AverageWeights::kind, select_average_weights}};
}

}  // namespace prun::cpu::PRUN_ISA
