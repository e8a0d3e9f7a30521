// Implements the LM head over one part of the vocabulary: lm_head_scan and lm_head_grad go through the logits
// a chunk of rows at a time; lm_head_rescale and lm_head_loss join what the parts found.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lm_head/cpu_rows.hpp"
#include "prun/ops/lm_head.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_split_kernels();

namespace {

template <class T>
void lm_head_scan(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::LmHeadScan> op(args);
  const LogitRows<T, false> head(op, *context.workers);
  const std::int64_t start = op["weight"].start[0], whole = op.integer("vocab");
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      const std::int64_t at = first + r;
      const std::int32_t target = op["targets"].as<const std::int32_t>()[at];
      op["hit"].as<C>()[at] = target_logit(row, head.vocab(), start, target, whole);
      const C largest = row_max(row, head.vocab());
      exp_row(row, head.vocab(), largest);
      op["max"].as<C>()[at] = largest;
      op["sum"].as<C>()[at] = static_cast<C>(row_sum(row, head.vocab()));
    });
  });
}

template <class C>
void lm_head_rescale(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadRescale> op(args);
  const C *max = op["max"].as<const C>(), *gmax = op["gmax"].as<const C>(), *sum = op["sum"].as<const C>();
  C* scaled = op["scaled"].as<C>();
  parallel_ranges(*context.workers, op["scaled"].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) scaled[i] = sum[i] * exp_of(max[i] - gmax[i]);
  });
}

template <class C>
void lm_head_loss(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadLoss> op(args);
  add_head_losses<C>(op, context, [](double lse, double hit) { return lse - hit; });
}

template <class T, class Sum>
void lm_head_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::LmHeadGrad> op(args);
  const LogitRows<T, true> head(op, *context.workers);
  const std::int64_t start = op["weight"].start[0];
  const double scale = *op["scale"].as<const double>();
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
      scale_row(row, head.vocab(), scale, targets[r] - start, scale);
    });
    head.add_gradients(first, rows, op["dx"].as<T>(), HeadSums<Sum>(op));
  });
}

Kernel select_scan(const OpShape& shape) {
  const ShapeOf<ops::LmHeadScan> s(shape);
  if (!scan_types(s)) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return lm_head_scan<T>; });
}

Kernel select_rescale(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRescale> s(shape);
  if (!same_type(s, {"max", "gmax", "sum", "scaled"})) return nullptr;
  return choose_state(s["max"].dtype, []<class C>() -> Kernel { return lm_head_rescale<C>; });
}

Kernel select_loss(const OpShape& shape) {
  const ShapeOf<ops::LmHeadLoss> s(shape);
  if (!loss_types(s)) return nullptr;
  return choose_state(s["gmax"].dtype, []<class C>() -> Kernel { return lm_head_loss<C>; });
}

Kernel select_grad(const OpShape& shape) {
  const ShapeOf<ops::LmHeadGrad> s(shape);
  if (!head_gradient_types(s) || s["lse"].dtype != OpShape::statistics(s["x"].dtype)) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_split_kernels() {
  using namespace ops;
  return {{LmHeadScan::kind, select_scan, logit_workspace<false, LmHeadScan>},
          {LmHeadRescale::kind, select_rescale},
          {LmHeadLoss::kind, select_loss, head_loss_workspace<LmHeadLoss>},
          {LmHeadGrad::kind, select_grad, logit_workspace<true, LmHeadGrad>, head_sums<LmHeadGrad>}};
}

}  // namespace prun::cpu::PRUN_ISA
