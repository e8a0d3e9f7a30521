// The updates, adamw and sgd, each in one pass over memory, and what decides about them: sum_squares and
// clip_factor; count_non_finite, where that was against the update.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "update_rule.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t sum_block = 4096;

std::int64_t sum_blocks(std::int64_t elements) { return (elements + sum_block - 1) / sum_block; }

double scalar(const Tensor& x) { return *x.as<const double>(); }

// Every block is summed by one thread, and the blocks are added in their order.
template <class T>
void sum_squares(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t elements = x.elements(), blocks = sum_blocks(elements);
  double* block_sum = static_cast<double*>(args.workspace);
  parallel_ranges(*context.workers, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const T* __restrict values = x.as<const T>() + block * sum_block;
      const std::int64_t n = std::min(sum_block, elements - block * sum_block);
      block_sum[block] = lane_sum<double>(n, [=](std::int64_t i) {
        const double value = load(values[i]);
        return value * value;
      });
    }
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += block_sum[block];
  *args.operands[1].as<double>() += sum;
}

std::int64_t sum_squares_workspace(const OpShape& s, std::int32_t) {
  return sum_blocks(s.operand[0].elements()) * size_of(DType::f64);
}

void clip_factor(const KernelArgs& args, const KernelContext&) {
  const double norm = std::sqrt(scalar(args.operands[0])), limit = args.attrs[0].f;
  const bool finite = std::isfinite(norm) && std::isfinite(scalar(args.operands[1]));
  *args.operands[3].as<double>() = norm;
  *args.operands[4].as<double>() = limit > 0 && norm > limit ? limit / norm : 1.0;
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
  parallel_ranges(*context.workers, to - from, sum_block, [&](std::int64_t begin, std::int64_t end) {
    const T* values = x.as<const T>() + from;
    found += std::count_if(values + begin, values + end, [](T value) { return !std::isfinite(load(value)); });
  });
  args.operands[2].as<double>()[args.attrs[0].i + args.layer * args.attrs[1].i] +=
      static_cast<double>(found.load());
}

template <class Weight, class State>
using Arithmetic = std::conditional_t<sizeof(Weight) == 8 || sizeof(State) == 8, double, float>;

// Of the one tensor that an op updates.
template <class C>
AdamStep<C> adam_step(const KernelArgs& args) {
  const double beta1 = args.attrs[0].f, beta2 = args.attrs[1].f;
  const AdamBias bias(beta1, beta2, scalar(args.operands[6]));
  AdamStep<C> step(beta1, beta2, args.attrs[2].f, scalar(args.operands[7]), bias);
  step.choose(scalar(args.operands[5]) * args.attrs[4].f, args.attrs[3].f, bias);
  return step;
}

// `weight` is what is updated: the master copy, where there is one, whose rounding is then `rounded`.
template <class State, class Weight, class... Rounded>
void adamw_pass(const KernelArgs& args, const KernelContext& context, Weight* weights, Rounded*... rounded) {
  using C = Arithmetic<Weight, State>;
  const AdamStep<C> step = adam_step<C>(args);
  const auto body = [step](Weight* __restrict weight, const State* __restrict gradient, State* __restrict m,
                           State* __restrict v, Rounded* __restrict... copy) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(m[l]), square = static_cast<C>(v[l]);
      const C value = step.update(static_cast<C>(weight[l]), static_cast<C>(gradient[l]), mean, square);
      m[l] = static_cast<State>(mean);
      v[l] = static_cast<State>(square);
      store(weight[l], value);
      (store(copy[l], value), ...);
    }
  };
  parallel_blocks(*context.workers, args.operands[0].elements(), body, weights,
                  args.operands[2].as<const State>(), args.operands[3].as<State>(),
                  args.operands[4].as<State>(), rounded...);
}

template <class T, class State>
void adamw(const KernelArgs& args, const KernelContext& context) {
  if (scalar(args.operands[8]) == 0) return;
  T* parameter = args.operands[0].as<T>();
  State* master = args.operands[1].as<State>();
  if (master)
    adamw_pass<State>(args, context, master, parameter);
  else
    adamw_pass<State>(args, context, parameter);
}

template <class C>
SgdStep<C> sgd_step(const KernelArgs& args) {
  SgdStep<C> step(args.attrs[0].f, scalar(args.operands[5]));
  step.choose(scalar(args.operands[4]) * args.attrs[2].f, args.attrs[1].f);
  return step;
}

template <class State, class Weight, class... Rounded>
void sgd_pass(const KernelArgs& args, const KernelContext& context, Weight* weights, Rounded*... rounded) {
  using C = Arithmetic<Weight, State>;
  const SgdStep<C> step = sgd_step<C>(args);
  const auto plain = [step](Weight* __restrict weight, const State* __restrict gradient,
                            Rounded* __restrict... copy) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      const C value = step.update(static_cast<C>(weight[l]), static_cast<C>(gradient[l]));
      store(weight[l], value);
      (store(copy[l], value), ...);
    }
  };
  const auto heavy = [step](Weight* __restrict weight, const State* __restrict gradient,
                            State* __restrict buffer, Rounded* __restrict... copy) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) {
      C mean = static_cast<C>(buffer[l]);
      const C value = step.update(static_cast<C>(weight[l]), static_cast<C>(gradient[l]), mean);
      buffer[l] = static_cast<State>(mean);
      store(weight[l], value);
      (store(copy[l], value), ...);
    }
  };
  const std::int64_t n = args.operands[0].elements();
  const State* gradient = args.operands[2].as<const State>();
  State* buffer = args.operands[3].as<State>();
  if (buffer)
    parallel_blocks(*context.workers, n, heavy, weights, gradient, buffer, rounded...);
  else
    parallel_blocks(*context.workers, n, plain, weights, gradient, rounded...);
}

template <class T, class State>
void sgd(const KernelArgs& args, const KernelContext& context) {
  if (scalar(args.operands[6]) == 0) return;
  T* parameter = args.operands[0].as<T>();
  State* master = args.operands[1].as<State>();
  if (master)
    sgd_pass<State>(args, context, master, parameter);
  else
    sgd_pass<State>(args, context, parameter);
}

bool all_double(const OpShape& s, int from, int to) {
  for (int i = from; i < to; ++i)
    if (s.operand[i].dtype != DType::f64) return false;
  return true;
}

Kernel select_sum_squares(const OpShape& s) {
  if (!all_double(s, 1, 2)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return sum_squares<T>; });
}

Kernel select_clip_factor(const OpShape& s) { return all_double(s, 0, 6) ? clip_factor : nullptr; }

Kernel select_count_non_finite(const OpShape& s) {
  if (!all_double(s, 1, 3)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return count_non_finite<T>; });
}

Kernel select_adamw(const OpShape& s) {
  if (!same_type(s, {2, 1, 3, 4}) || !all_double(s, 5, 9)) return nullptr;
  return choose_value(s.operand[0].dtype, [&]<class T>() -> Kernel {
    return choose_state(s.operand[2].dtype, []<class State>() -> Kernel { return adamw<T, State>; });
  });
}

// Momentum without a buffer to keep it in is refused.
Kernel select_sgd(const OpShape& s) {
  if (!same_type(s, {2, 1, 3}) || !all_double(s, 4, 7)) return nullptr;
  if (s.attrs[0].f != 0 && !s.operand[3].present) return nullptr;
  return choose_value(s.operand[0].dtype, [&]<class T>() -> Kernel {
    return choose_state(s.operand[2].dtype, []<class State>() -> Kernel { return sgd<T, State>; });
  });
}

}  // namespace

std::vector<KernelDef> optimizer_kernels();
std::vector<KernelDef> optimizer_kernels() {
  return {{"sum_squares", select_sum_squares, sum_squares_workspace},
          {"clip_factor", select_clip_factor},
          {"count_non_finite", select_count_non_finite},
          {"adamw", select_adamw},
          {"sgd", select_sgd}};
}

}  // namespace prun::cpu::PRUN_ISA
