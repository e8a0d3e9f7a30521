// Implements the updates adamw, sgd, momentum and average_weights, each in one pass over memory, and the ops
// that decide about them: sum_squares, clip_factor, and count_non_finite, which runs where that was against
// the update.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/philox.hpp"
#include "cpu/values.hpp"
#include "eight_bits.hpp"
#include "philox_rounds.hpp"
#include "square_sum.hpp"
#include "update_rule.hpp"
#include "update_types.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t count_grain = 4096;

double scalar(const Tensor& x) { return *x.as<const double>(); }

template <class T>
void add_row(const T* __restrict values, double* __restrict columns) {
  for (std::int64_t i = 0; i < square_sum::row_elements; i += square_sum::columns) {
#pragma omp simd
    for (std::int64_t c = 0; c < square_sum::columns; ++c) {
      const double value = load(values[i + c]);
      columns[c] += value * value;
    }
  }
}

double fold(double* values, std::int64_t count) {
  for (std::int64_t half = count / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

template <class T>
double sum_of_part(const T* values, std::int64_t elements) {
  using namespace square_sum;
  double column[columns] = {};
  std::int64_t i = 0;
  for (; i + row_elements <= elements; i += row_elements) add_row(values + i, column);
  if (i < elements) {
    std::array<T, row_elements> padded{};
    std::copy_n(values + i, elements - i, padded.begin());
    add_row(padded.data(), column);
  }
  double lane[lanes];
  for (int l = 0; l < lanes; ++l) lane[l] = fold(column + l * together, together);
  return fold(lane, lanes);
}

template <class T>
void sum_squares(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t elements = x.elements(), parts = square_sum::parts_of(elements);
  const std::int64_t each = square_sum::part_elements(elements);
  double* part = static_cast<double*>(args.workspace);
  parallel_ranges(*context.workers, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      part[p] = sum_of_part(x.as<const T>() + p * each, std::min(each, elements - p * each));
  });
  double lane[square_sum::lanes] = {};
  for (std::int64_t p = 0; p < parts; ++p) lane[p % square_sum::lanes] += part[p];
  *args.operands[1].as<double>() += fold(lane, square_sum::lanes);
}

std::int64_t sum_squares_workspace(const OpShape& s, std::int32_t) {
  return square_sum::parts_of(s.operand[0].elements()) * size_of(DType::f64);
}

void clip_factor(const KernelArgs& args, const KernelContext&) {
  const Tensor& of_loss = args.operands[6];
  const double scale = of_loss.data ? scalar(of_loss) : 1, limit = args.attrs[0].f;
  const double norm = std::sqrt(scalar(args.operands[0])) / scale;
  const bool finite = std::isfinite(norm) && std::isfinite(scalar(args.operands[1]));
  *args.operands[3].as<double>() = norm;
  *args.operands[4].as<double>() = (limit > 0 && norm > limit ? limit / norm : 1.0) / scale;
  *args.operands[5].as<double>() = finite && scalar(args.operands[2]) == 0 ? 1.0 : 0.0;
}

template <class T>
void count_non_finite(const KernelArgs& args, const KernelContext& context) {
  if (scalar(args.operands[1]) != 0) return;
  const Tensor& x = args.operands[0];
  const std::int64_t first = args.attrs[2].i - x.start[0], elements = args.attrs[3].i;
  const std::int64_t from = elements > 0 ? std::max<std::int64_t>(first, 0) : 0;
  const std::int64_t to = elements > 0 ? std::min(first + elements, x.elements()) : x.elements();
  if (from >= to) return;
  std::atomic<std::int64_t> found{0};
  parallel_ranges(*context.workers, to - from, count_grain, [&](std::int64_t begin, std::int64_t end) {
    const T* values = x.as<const T>() + from;
    found += std::count_if(values + begin, values + end, [](T value) { return !std::isfinite(load(value)); });
  });
  args.operands[2].as<double>()[args.attrs[0].i + args.layer * args.attrs[1].i] +=
      static_cast<double>(found.load());
}

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

// Draws the words of neighbouring elements: at most block_lanes of them.
class Draws {
 public:
  Draws(double seed, std::uint64_t stream) : seed_(static_cast<std::uint64_t>(seed)), stream_(stream) {}

  void draw(std::uint64_t first, std::int64_t n, std::uint32_t* words) const {
    constexpr std::int64_t half = 4 * philox_lanes;  // counts words of one state
    alignas(64) std::uint32_t drawn[block_lanes + 2 * half];
    const auto skipped = static_cast<std::int64_t>(first % 4);
    std::uint64_t block = first / 4;
    for (std::int64_t c = 0; c < skipped + n; c += 2 * half, block += 2 * philox_lanes) {
      PhiloxState x = counters(block), y = counters(block + philox_lanes);
      philox<rounds_of_steps>(x, y,
                              {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
      x.store(drawn + c);
      y.store(drawn + c + half);
    }
    std::copy_n(drawn + skipped, n, words);
  }

 private:
  PhiloxState counters(std::uint64_t first) const {
    Words block = Words{} + first;
    for (int l = 0; l < philox_lanes; ++l) block[l] += static_cast<std::uint64_t>(l);
    return {block, block >> 32, Words{} + stream_, Words{} + (stream_ >> 32)};
  }

  std::uint64_t seed_, stream_;
};

// Draws the words of elements [i, i + n) of a tensor.
void draw_elements(const Draws& draws, const TensorElements& elements, std::int64_t i, std::int64_t n,
                   std::uint32_t* words) {
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t left = elements.run - (elements.skipped + i + done) % elements.run;
    const std::int64_t together = std::min(n - done, left);
    draws.draw(static_cast<std::uint64_t>(elements.number(i + done)), together, words + done);
    done += together;
  }
}

// Is the key of an update that rounds by chance.
struct ChanceKey {
  double seed = 0, step = 0;

  ChanceKey(const Tensor& seed_operand, const Tensor& step_operand)
      : seed(scalar(seed_operand)), step(scalar(step_operand)) {}
};

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

bool all_double(const OpShape& s, int from, int to) {
  for (int i = from; i < to; ++i)
    if (!s.operand[i].present || s.operand[i].dtype != DType::f64) return false;
  return true;
}

Kernel select_sum_squares(const OpShape& s) {
  if (!all_double(s, 1, 2)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return sum_squares<T>; });
}

Kernel select_clip_factor(const OpShape& s) {
  const bool scale = !s.operand[6].present || all_double(s, 6, 7);
  return all_double(s, 0, 6) && scale ? clip_factor : nullptr;
}

Kernel select_count_non_finite(const OpShape& s) {
  if (!all_double(s, 1, 3)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return count_non_finite<T>; });
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
  return {{"sum_squares", select_sum_squares, sum_squares_workspace},
          {"summand_squares", select_sum_squares, sum_squares_workspace},
          {"clip_factor", select_clip_factor},
          {"count_non_finite", select_count_non_finite},
          {"adamw", select_adamw},
          {"sgd", select_sgd},
          {"momentum", select_momentum},
          {"average_weights", select_average_weights}};
}

}  // namespace prun::cpu::PRUN_ISA
