// Implements the LM head over one part of the vocabulary: lm_head_scan and lm_head_grad go through the logits
// a chunk of rows at a time; lm_head_rescale and lm_head_loss join what the parts found.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/lm_head_rows.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_split_kernels();

namespace {

template <class T>
void lm_head_scan(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, false> head(o[0], o[1], o[6], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0], whole = args.attrs[0].i;
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      const std::int64_t at = first + r;
      const std::int32_t target = o[2].as<const std::int32_t>()[at];
      o[5].as<C>()[at] = target_logit(row, head.vocab(), start, target, whole);
      const C largest = row_max(row, head.vocab());
      exp_row(row, head.vocab(), largest);
      o[3].as<C>()[at] = largest;
      o[4].as<C>()[at] = static_cast<C>(row_sum(row, head.vocab()));
    });
  });
}

template <class C>
void lm_head_rescale(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const C *max = o[0].as<const C>(), *gmax = o[1].as<const C>(), *sum = o[2].as<const C>();
  C* scaled = o[3].as<C>();
  parallel_ranges(*context.workers, o[3].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) scaled[i] = sum[i] * exp_of(max[i] - gmax[i]);
  });
}

// Losses are computed by all threads and added by one, in the order of the rows.
template <class C>
void lm_head_loss(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const std::int64_t rows = o[3].elements();
  const auto* targets = o[3].as<const std::int32_t>();
  Scratch scratch(args.workspace);
  double* losses = scratch.take<double>(rows);
  parallel_ranges(*context.workers, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double lse =
          static_cast<double>(o[0].as<const C>()[r]) + std::log(static_cast<double>(o[1].as<const C>()[r]));
      o[5].as<C>()[r] = static_cast<C>(lse);
      losses[r] = targets[r] < 0 ? 0 : lse - static_cast<double>(o[2].as<const C>()[r]);
    }
  });
  double& loss = *o[4].as<double>();
  for (std::int64_t r = 0; r < rows; ++r) loss += losses[r];
}

std::int64_t loss_workspace(const OpShape& shape, std::int32_t) {
  Scratch scratch;
  scratch.take<double>(shape.operand[3].elements());
  return scratch.bytes();
}

template <class T, class Sum>
void lm_head_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], o[bias_at], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0];
  const double scale = *o[4].as<const double>();
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
      scale_row(row, head.vocab(), scale, targets[r] - start, scale);
    });
    head.add_gradients(first, rows, o[dx_at].as<T>(), HeadSums<Sum>(args, dweight_at, dbias_at));
  });
}

Kernel select_scan(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!head_types(s, 6) || !same_type(s, {3, 4, 5}) || s.operand[3].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return lm_head_scan<T>; });
}

Kernel select_rescale(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_state(s.operand[0].dtype, []<class C>() -> Kernel { return lm_head_rescale<C>; });
}

Kernel select_loss(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 5}) || s.operand[3].dtype != DType::i32) return nullptr;
  if (s.operand[4].dtype != DType::f64) return nullptr;
  return choose_state(s.operand[0].dtype, []<class C>() -> Kernel { return lm_head_loss<C>; });
}

Kernel select_grad(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!head_gradient_types(s, 4) || s.operand[3].dtype != OpShape::statistics(type)) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_split_kernels() {
  return {{"lm_head_scan", select_scan, logit_workspace<false>},
          {"lm_head_rescale", select_rescale},
          {"lm_head_loss", select_loss, loss_workspace},
          {"lm_head_grad", select_grad, logit_workspace<true>, head_sums}};
}

}  // namespace prun::cpu::PRUN_ISA
