// Implements lm_head_regularized and the ops of its split form: they are lm_head with z-loss and label
// smoothing (kernels/lm_head/lm_head.hpp defines these).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lm_head/cpu_rows.hpp"
#include "prun/ops/lm_head.hpp"

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
  const ArgsOf<ops::LmHeadRegularized> op(args);
  const LogitRows<T, true> head(op, *context.workers);
  const double scale = *op["scale"].as<const double>();
  const Regularized by{op.real("z"), op.real("smoothing"), head.vocab()};
  double& loss = *op["loss"].as<double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = op["targets"].as<const std::int32_t>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      head.row_loss(r) = regularized_entropy(head.row(r), head.vocab(), targets[r], scale, by);
    });
    for (std::int64_t r = 0; r < rows; ++r) loss += head.row_loss(r);
    head.add_gradients(first, rows, op["dx"].as<T>(), HeadSums<Sum>(op));
  });
}

template <class T>
void lm_head_regularized_scan(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::LmHeadRegularizedScan> op(args);
  const LogitRows<T, false> head(op, *context.workers);
  const std::int64_t start = op["weight"].start[0], whole = op.integer("vocab");
  const Regularized by{0, op.real("smoothing"), whole};
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      const std::int64_t at = first + r, target = op["targets"].as<const std::int32_t>()[at],
                         place = target - start;
      const bool here = target >= 0 && place >= 0 && place < head.vocab();
      const double wanted = here ? static_cast<double>(row[place]) : 0;
      const double hit = (1 - by.smoothing) * wanted + by.share() * logit_sum(row, head.vocab());
      op["hit"].as<C>()[at] = target >= whole ? std::numeric_limits<C>::quiet_NaN() : static_cast<C>(hit);
      const C largest = row_max(row, head.vocab());
      exp_row(row, head.vocab(), largest);
      op["max"].as<C>()[at] = largest;
      op["sum"].as<C>()[at] = static_cast<C>(row_sum(row, head.vocab()));
    });
  });
}

template <class C>
void lm_head_regularized_loss(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadRegularizedLoss> op(args);
  const double z = op.real("z");
  add_head_losses<C>(op, context, [z](double lse, double hit) { return lse - hit + z * lse * lse; });
}

template <class T, class Sum>
void lm_head_regularized_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::LmHeadRegularizedGrad> op(args);
  const LogitRows<T, true> head(op, *context.workers);
  const std::int64_t start = op["weight"].start[0];
  const double scale = *op["scale"].as<const double>();
  const Regularized by{op.real("z"), op.real("smoothing"), op.integer("vocab")};
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = op["targets"].as<const std::int32_t>() + first;
    const C* lse = op["lse"].as<const C>() + first;
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
    head.add_gradients(first, rows, op["dx"].as<T>(), HeadSums<Sum>(op));
  });
}

Kernel select_regularized(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRegularized> s(shape);
  if (!head_gradient_types(s) || s["loss"].dtype != DType::f64) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_regularized<T, Sum>; });
}

Kernel select_regularized_scan(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRegularizedScan> s(shape);
  if (!scan_types(s)) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return lm_head_regularized_scan<T>; });
}

Kernel select_regularized_loss(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRegularizedLoss> s(shape);
  if (!loss_types(s)) return nullptr;
  return choose_state(s["gmax"].dtype, []<class C>() -> Kernel { return lm_head_regularized_loss<C>; });
}

Kernel select_regularized_grad(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRegularizedGrad> s(shape);
  if (!head_gradient_types(s) || s["lse"].dtype != OpShape::statistics(s["x"].dtype)) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_regularized_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_regularized_kernels() {
  using Whole = ops::LmHeadRegularized;
  using Scan = ops::LmHeadRegularizedScan;
  using Loss = ops::LmHeadRegularizedLoss;
  using Grad = ops::LmHeadRegularizedGrad;
  return {{Whole::kind, select_regularized, logit_workspace<true, Whole>, head_sums<Whole>},
          {Scan::kind, select_regularized_scan, logit_workspace<false, Scan>},
          {Loss::kind, select_regularized_loss, head_loss_workspace<Loss>},
          {Grad::kind, select_regularized_grad, logit_workspace<true, Grad>, head_sums<Grad>}};
}

}  // namespace prun::cpu::PRUN_ISA
