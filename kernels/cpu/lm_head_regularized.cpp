// Implements lm_head_regularized and the ops of its split form: they are lm_head with z-loss and label
// smoothing (core/ops/lm_head_regularized.cpp defines these).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/lm_head_rows.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_regularized_kernels();

namespace {

struct Regularized {
  double z, smoothing;
  std::int64_t words;  // counts those of the whole vocabulary

  double share() const { return smoothing / static_cast<double>(words); }
};

// Returns the sum of a row's logits: its padding holds none.
template <class C>
double logit_sum(const C* row, std::int64_t n) {
  constexpr std::int64_t lanes = 8;
  double parts[lanes] = {};
  for (std::int64_t j = 0; j < n; ++j) parts[j % lanes] += static_cast<double>(row[j]);
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

// Turns exponentials into gradients.
template <class C>
void regularized_row(C* row, std::int64_t vocab, double factor, std::int64_t target, double scale,
                     const Regularized& by) {
  scale_row(row, vocab, factor, target, scale * (1 - by.smoothing));
  if (by.smoothing == 0) return;
  const C less = static_cast<C>(scale * by.share());
#pragma omp simd
  for (std::int64_t j = 0; j < vocab; ++j) row[j] -= less;
}

// Turns a row of logits into its gradient and returns the row's loss, as lm_head does.
template <class C>
double regularized_entropy(C* row, std::int64_t vocab, std::int32_t target, double scale,
                           const Regularized& by) {
  if (target < 0 || target >= vocab) {
    std::fill_n(row, vocab, C{0});
    return target < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  const double wanted =
      (1 - by.smoothing) * static_cast<double>(row[target]) + by.share() * logit_sum(row, vocab);
  const C largest = row_max(row, vocab);
  exp_row(row, vocab, largest);
  const double sum = row_sum(row, vocab), lse = static_cast<double>(largest) + std::log(sum);
  regularized_row(row, vocab, scale * (1 + 2 * by.z * lse) / sum, target, scale, by);
  return lse - wanted + by.z * lse * lse;
}

template <class T, class Sum>
void lm_head_regularized(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], o[bias_at], *context.workers, args.workspace);
  const double scale = *o[3].as<const double>();
  const Regularized by{args.attrs[0].f, args.attrs[1].f, head.vocab()};
  double& loss = *o[4].as<double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = o[2].as<const std::int32_t>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      head.row_loss(r) = regularized_entropy(head.row(r), head.vocab(), targets[r], scale, by);
    });
    for (std::int64_t r = 0; r < rows; ++r) loss += head.row_loss(r);
    head.add_gradients(first, rows, o[dx_at].as<T>(), HeadSums<Sum>(args, dweight_at, dbias_at));
  });
}

template <class T>
void lm_head_regularized_scan(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, false> head(o[0], o[1], o[6], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0], whole = args.attrs[0].i;
  const Regularized by{0, args.attrs[1].f, whole};
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      const std::int64_t at = first + r, target = o[2].as<const std::int32_t>()[at], place = target - start;
      const bool here = target >= 0 && place >= 0 && place < head.vocab();
      const double wanted = here ? static_cast<double>(row[place]) : 0;
      const double hit = (1 - by.smoothing) * wanted + by.share() * logit_sum(row, head.vocab());
      o[5].as<C>()[at] = target >= whole ? std::numeric_limits<C>::quiet_NaN() : static_cast<C>(hit);
      const C largest = row_max(row, head.vocab());
      exp_row(row, head.vocab(), largest);
      o[3].as<C>()[at] = largest;
      o[4].as<C>()[at] = static_cast<C>(row_sum(row, head.vocab()));
    });
  });
}

// Does as lm_head_loss: losses are computed by all threads, added by one, in the order of the rows.
template <class C>
void lm_head_regularized_loss(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const std::int64_t rows = o[3].elements();
  const auto* targets = o[3].as<const std::int32_t>();
  const double z = args.attrs[0].f;
  Scratch scratch(args.workspace);
  double* losses = scratch.take<double>(rows);
  parallel_ranges(*context.workers, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double lse =
          static_cast<double>(o[0].as<const C>()[r]) + std::log(static_cast<double>(o[1].as<const C>()[r]));
      o[5].as<C>()[r] = static_cast<C>(lse);
      losses[r] = targets[r] < 0 ? 0 : lse - static_cast<double>(o[2].as<const C>()[r]) + z * lse * lse;
    }
  });
  double& loss = *o[4].as<double>();
  for (std::int64_t r = 0; r < rows; ++r) loss += losses[r];
}

std::int64_t regularized_loss_workspace(const OpShape& shape, std::int32_t) {
  Scratch scratch;
  scratch.take<double>(shape.operand[3].elements());
  return scratch.bytes();
}

template <class T, class Sum>
void lm_head_regularized_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], o[bias_at], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0];
  const double scale = *o[4].as<const double>();
  const Regularized by{args.attrs[1].f, args.attrs[2].f, args.attrs[0].i};
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = o[2].as<const std::int32_t>() + first;
    const C* lse = o[3].as<const C>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      if (targets[r] < 0) {
        std::fill_n(row, head.vocab(), C{0});
        return;
      }
      exp_row(row, head.vocab(), lse[r]);
      const double factor = scale * (1 + 2 * by.z * static_cast<double>(lse[r]));
      regularized_row(row, head.vocab(), factor, targets[r] - start, scale, by);
    });
    head.add_gradients(first, rows, o[dx_at].as<T>(), HeadSums<Sum>(args, dweight_at, dbias_at));
  });
}

Kernel select_regularized(const OpShape& s) {
  if (!head_gradient_types(s, 3) || s.operand[4].dtype != DType::f64) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_regularized<T, Sum>; });
}

Kernel select_regularized_scan(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!head_types(s, 6) || !same_type(s, {3, 4, 5}) || s.operand[3].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return lm_head_regularized_scan<T>; });
}

Kernel select_regularized_loss(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 5}) || s.operand[3].dtype != DType::i32 || s.operand[4].dtype != DType::f64)
    return nullptr;
  return choose_state(s.operand[0].dtype, []<class C>() -> Kernel { return lm_head_regularized_loss<C>; });
}

Kernel select_regularized_grad(const OpShape& s) {
  if (!head_gradient_types(s, 4) || s.operand[3].dtype != OpShape::statistics(s.operand[0].dtype))
    return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_regularized_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_regularized_kernels() {
  return {{"lm_head_regularized", select_regularized, logit_workspace<true>, head_sums},
          {"lm_head_regularized_scan", select_regularized_scan, logit_workspace<false>},
          {"lm_head_regularized_loss", select_regularized_loss, regularized_loss_workspace},
          {"lm_head_regularized_grad", select_regularized_grad, logit_workspace<true>, head_sums}};
}

}  // namespace prun::cpu::PRUN_ISA
