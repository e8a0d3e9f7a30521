// Implements lm_head: logits, cross-entropy and both gradients, a chunk of rows at a time.
#include <vector>

#include "lm_head/cpu_rows.hpp"
#include "prun/ops/lm_head.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_kernels();

namespace {

template <class T, class Sum>
void lm_head(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHead> op(args);
  const LogitRows<T, true> head(op, *context.workers);
  const double scale = *op["scale"].as<const double>();
  double& loss = *op["loss"].as<double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = op["targets"].as<const std::int32_t>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      head.row_loss(r) = cross_entropy(head.row(r), head.vocab(), targets[r], scale);
    });
    for (std::int64_t r = 0; r < rows; ++r) loss += head.row_loss(r);
    head.add_gradients(first, rows, op["dx"].as<T>(), HeadSums<Sum>(op));
  });
}

Kernel select(const OpShape& shape) {
  const ShapeOf<ops::LmHead> s(shape);
  if (!head_gradient_types(s) || s["loss"].dtype != DType::f64) return nullptr;
  return choose_head(s, []<class T, class Sum>() -> Kernel { return lm_head<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_kernels() {
  return {{ops::LmHead::kind, select, logit_workspace<true, ops::LmHead>, head_sums<ops::LmHead>}};
}

}  // namespace prun::cpu::PRUN_ISA
