// Implements router and its gradients: products of values with scores that have more precision.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
Matrix<T> rows_of(const Tensor& tensor) {
  return row_major(tensor.as<T>(), tensor.outer(1), tensor.inner(1));
}

template <class T>
void router(const KernelArgs& args, const KernelContext& context) {
  gemm<T, T, Compute<T>>(*context.workers, rows_of<const T>(args.operands[0]),
                         rows_of<const T>(args.operands[1]).transposed(),
                         rows_of<Compute<T>>(args.operands[2]), false, nullptr, args.workspace);
}

template <class T>
void router_input_grad(const KernelArgs& args, const KernelContext& context) {
  gemm<Compute<T>, T, T>(*context.workers, rows_of<const Compute<T>>(args.operands[0]),
                         rows_of<const T>(args.operands[1]), rows_of<T>(args.operands[2]), false, nullptr,
                         args.workspace);
}

template <class T, class Sum>
void router_weight_grad(const KernelArgs& args, const KernelContext& context) {
  gemm<Compute<T>, T, Sum>(*context.workers, rows_of<const Compute<T>>(args.operands[1]).transposed(),
                           rows_of<const T>(args.operands[0]), rows_of<Sum>(args.operands[2]),
                           !args.begins(2), nullptr, args.workspace);
}

bool types(const OpShape& s, int values, int scores) {
  return s.operand[scores].dtype == OpShape::statistics(s.operand[values].dtype);
}

Kernel select_router(const OpShape& s) {
  if (!same_type(s, {0, 1}) || !types(s, 0, 2)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return router<T>; });
}

Kernel select_input_grad(const OpShape& s) {
  if (!same_type(s, {1, 2}) || !types(s, 1, 0)) return nullptr;
  return choose_value(s.operand[1].dtype, []<class T>() -> Kernel { return router_input_grad<T>; });
}

Kernel select_weight_grad(const OpShape& s) {
  if (!types(s, 0, 1)) return nullptr;
  return choose_product_sum(s.operand[0].dtype, s.operand[2].dtype,
                            []<class T, class Sum>() -> Kernel { return router_weight_grad<T, Sum>; });
}

// Describes a product whose extents are the rows of a value [..., columns] and those of a weight [routes,
// hidden].
std::int64_t rows(const OperandShape& value) { return value.elements() / value.dims[value.rank - 1].extent; }

std::int64_t compute_size(const OperandShape& value) { return value.dtype == DType::f64 ? 8 : 4; }

std::int64_t router_workspace(const OpShape& s, std::int32_t threads) {
  const OperandShape &x = s.operand[0], &w = s.operand[1];
  return gemm_workspace(threads, rows(x), w.dims[0].extent, w.dims[1].extent, compute_size(x));
}

std::int64_t input_grad_workspace(const OpShape& s, std::int32_t threads) {
  const OperandShape &d = s.operand[0], &w = s.operand[1];
  return gemm_workspace(threads, rows(d), w.dims[1].extent, w.dims[0].extent, compute_size(d));
}

std::int64_t weight_grad_workspace(const OpShape& s, std::int32_t threads) {
  const OperandShape &x = s.operand[0], &w = s.operand[2];
  return gemm_workspace(threads, w.dims[0].extent, w.dims[1].extent, rows(x), compute_size(x));
}

}  // namespace

std::vector<KernelDef> router_kernels();
std::vector<KernelDef> router_kernels() {
  return {{"router", select_router, router_workspace},
          {"router_input_grad", select_input_grad, input_grad_workspace},
          {"router_weight_grad", select_weight_grad, weight_grad_workspace, 1u << 2}};
}

}  // namespace prun::cpu::PRUN_ISA
