// Implements lm_head: logits, cross-entropy and both gradients, a chunk of rows at a time.
#include <vector>

#include "cpu/lm_head_rows.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_kernels();

namespace {

template <class T, class Sum>
void lm_head(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], o[bias_at], *context.workers, args.workspace);
  const double scale = *o[3].as<const double>();
  double& loss = *o[4].as<double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = o[2].as<const std::int32_t>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      head.row_loss(r) = cross_entropy(head.row(r), head.vocab(), targets[r], scale);
    });
    for (std::int64_t r = 0; r < rows; ++r) loss += head.row_loss(r);
    head.add_gradients(first, rows, o[dx_at].as<T>(), HeadSums<Sum>(args, dweight_at, dbias_at));
  });
}

Kernel select(const OpShape& s) {
  if (!head_gradient_types(s, 3) || s.operand[4].dtype != DType::f64) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_kernels() { return {{"lm_head", select, logit_workspace<true>, head_sums}}; }

}  // namespace prun::cpu::PRUN_ISA
