// Implements bias_grad: the gradient of a bias is the sum of dy over its leading dimensions.
#include <vector>

#include "cpu/column_sum.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/bias.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T, class Sum>
void bias_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasGrad> op(args);
  const Tensor &dy = op["dy"], &dbias = op["dbias"];
  const RowGroups shape = RowGroups::of(dy, dbias.elements());
  const T* values = dy.as<const T>();
  const auto add_row = [=](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    const T* __restrict terms = values + row * shape.width + column;
    Compute<Sum>* __restrict sum = tile[0];
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) sum[c] += load(terms[c]);
  };
  add_column_sums<Sum, 1>(*context.workers, shape, {ColumnSums<Sum>::of(args, op.at("dbias"))}, add_row);
}

Kernel select_bias_grad(const OpShape& shape) {
  const ShapeOf<ops::BiasGrad> s(shape);
  return choose_accumulation(s["dy"].dtype, s["dbias"].dtype,
                             []<class T, class Sum>() -> Kernel { return bias_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> bias_kernels();
std::vector<KernelDef> bias_kernels() {
  return {{ops::BiasGrad::kind, select_bias_grad, nullptr, bits_of<ops::BiasGrad>("dbias")}};
}

}  // namespace prun::cpu::PRUN_ISA
