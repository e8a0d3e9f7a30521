// Implements bias_grad: the gradient of a bias is the sum of dy over its leading dimensions.
#include <vector>

#include "cpu/column_sum.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T, class Sum>
void bias_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor &dy = args.operands[0], &dbias = args.operands[1];
  const RowGroups shape = RowGroups::of(dy, dbias.elements());
  const T* values = dy.as<const T>();
  const auto add_row = [=](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    const T* __restrict terms = values + row * shape.width + column;
    Compute<Sum>* __restrict sum = tile[0];
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) sum[c] += load(terms[c]);
  };
  add_column_sums<Sum, 1>(*context.workers, shape, {ColumnSums<Sum>::of(args, 1)}, add_row);
}

Kernel select_bias_grad(const OpShape& s) {
  return choose_accumulation(s.operand[0].dtype, s.operand[1].dtype,
                             []<class T, class Sum>() -> Kernel { return bias_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> bias_kernels();
std::vector<KernelDef> bias_kernels() { return {{"bias_grad", select_bias_grad, nullptr, 1u << 1}}; }

}  // namespace prun::cpu::PRUN_ISA
