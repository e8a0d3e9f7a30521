// Implements router and its gradients: products of values with scores that have more precision.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "prun/op.hpp"
#include "prun/ops/router.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
Matrix<T> rows_of(const Tensor& tensor) {
  return row_major(tensor.as<T>(), tensor.outer(1), tensor.inner(1));
}

template <class T>
void router(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Router> op(args);
  gemm<T, T, Compute<T>>(*context.workers, rows_of<const T>(op["x"]),
                         rows_of<const T>(op["weight"]).transposed(), rows_of<Compute<T>>(op["logits"]),
                         false, op["bias"].as<const T>(), args.workspace);
}

template <class T>
void router_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouterInputGrad> op(args);
  gemm<Compute<T>, T, T>(*context.workers, rows_of<const Compute<T>>(op["dlogits"]),
                         rows_of<const T>(op["weight"]), rows_of<T>(op["dx"]), false, nullptr,
                         args.workspace);
}

template <class T, class Sum>
void router_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouterWeightGrad> op(args);
  gemm<Compute<T>, T, Sum>(*context.workers, rows_of<const Compute<T>>(op["dlogits"]).transposed(),
                           rows_of<const T>(op["x"]), rows_of<Sum>(op["dweight"]), !op.begins("dweight"),
                           nullptr, args.workspace);
}

bool types(const OpShape& s, int values, int scores) {
  return s.operand[scores].dtype == OpShape::statistics(s.operand[values].dtype);
}

Kernel select_router(const OpShape& shape) {
  const ShapeOf<ops::Router> s(shape);
  if (!same_type(s, {"x", "weight"}) || !types(s, s.at("x"), s.at("logits"))) return nullptr;
  if (s["bias"].present && !same_type(s, {"x", "bias"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return router<T>; });
}

Kernel select_input_grad(const OpShape& shape) {
  const ShapeOf<ops::RouterInputGrad> s(shape);
  if (!same_type(s, {"weight", "dx"}) || !types(s, s.at("weight"), s.at("dlogits"))) return nullptr;
  return choose_value(s["weight"].dtype, []<class T>() -> Kernel { return router_input_grad<T>; });
}

Kernel select_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::RouterWeightGrad> s(shape);
  if (!types(s, s.at("x"), s.at("dlogits"))) return nullptr;
  return choose_product_sum(s["x"].dtype, s["dweight"].dtype,
                            []<class T, class Sum>() -> Kernel { return router_weight_grad<T, Sum>; });
}

// Describes a product whose extents are the rows of a value [..., columns] and those of a weight [routes,
// hidden].
std::int64_t rows(const OperandShape& value) { return value.elements() / value.dims[value.rank - 1].extent; }

std::int64_t compute_size(const OperandShape& value) { return value.dtype == DType::f64 ? 8 : 4; }

std::int64_t router_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::Router> s(shape);
  const OperandShape &x = s["x"], &w = s["weight"];
  return gemm_workspace(threads, rows(x), w.dims[0].extent, w.dims[1].extent, compute_size(x));
}

std::int64_t input_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::RouterInputGrad> s(shape);
  const OperandShape &d = s["dlogits"], &w = s["weight"];
  return gemm_workspace(threads, rows(d), w.dims[1].extent, w.dims[0].extent, compute_size(d));
}

std::int64_t weight_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::RouterWeightGrad> s(shape);
  const OperandShape &x = s["x"], &w = s["dweight"];
  return gemm_workspace(threads, w.dims[0].extent, w.dims[1].extent, rows(x), compute_size(x));
}

}  // namespace

std::vector<KernelDef> router_kernels();
std::vector<KernelDef> router_kernels() {
  return {{ops::Router::kind, select_router, router_workspace},
          {ops::RouterInputGrad::kind, select_input_grad, input_grad_workspace},
          {ops::RouterWeightGrad::kind, select_weight_grad, weight_grad_workspace,
           bits_of<ops::RouterWeightGrad>("dweight")}};
}

}  // namespace prun::cpu::PRUN_ISA
