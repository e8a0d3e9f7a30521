// Launches balance, its gradient, and steer.
#include "balance/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/balance.hpp"

namespace prun::cuda {
namespace {

template <class Op>
BalanceShape shape_of(const ArgsOf<Op>& op, std::int64_t routes) {
  const Tensor& index = op["index"];
  return {index.dim[0],           index.dim[1], index.dim[2], routes, op.integer("sigmoid") != 0,
          op.real("coefficient"), op.real("z")};
}

template <class C>
void balance(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Balance> op(args);
  const std::int64_t routes = op["counts"].dim[1];
  double* const losses = op["losses"].as<double>();
  cuda::balance<C>(op["logits"].as<const C>(), op["index"].as<const std::int32_t>(),
                   op["targets"].as<const std::int32_t>(), op["scale"].as<const double>(),
                   op["counts"].as<double>() + args.layer * routes,
                   losses ? losses + args.layer * 2 : nullptr, shape_of(op, routes), args.workspace,
                   stream_of(context));
}

template <class C>
void balance_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BalanceGrad> op(args);
  cuda::balance_grad<C>(op["logits"].as<const C>(), op["index"].as<const std::int32_t>(),
                        op["targets"].as<const std::int32_t>(), op["scale"].as<const double>(),
                        op["dlogits"].as<C>(), shape_of(op, op["logits"].dim[2]), args.workspace,
                        stream_of(context));
}

template <class C>
void steer(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Steer> op(args);
  const std::int64_t routes = op["counts"].dim[1];
  cuda::steer<C>(op["counts"].as<const double>() + args.layer * routes, op["keep"].as<const double>(),
                 op["bias"].as<C>(), routes, op.real("rate"), stream_of(context));
}

template <Kernel in_double, Kernel in_float>
Kernel by_score(DType type) {
  return type == DType::f64 ? in_double : type == DType::f32 ? in_float : nullptr;
}

template <class Op>
bool number_types(const ShapeOf<Op>& s) {
  return have_type(s, DType::i32, {"index", "targets"}) && s["scale"].dtype == DType::f64;
}

Kernel select_balance(const OpShape& shape) {
  const ShapeOf<ops::Balance> s(shape);
  if (!number_types(s) || !have_type(s, DType::f64, {"counts", "losses"})) return nullptr;
  return by_score<balance<double>, balance<float>>(s["logits"].present ? s["logits"].dtype : DType::f64);
}

Kernel select_balance_grad(const OpShape& shape) {
  const ShapeOf<ops::BalanceGrad> s(shape);
  if (!number_types(s) || !same_type(s, {"logits", "dlogits"})) return nullptr;
  return by_score<balance_grad<double>, balance_grad<float>>(s["logits"].dtype);
}

Kernel select_steer(const OpShape& shape) {
  const ShapeOf<ops::Steer> s(shape);
  if (!have_type(s, DType::f64, {"counts", "keep"})) return nullptr;
  return by_score<steer<double>, steer<float>>(s["bias"].dtype);
}

std::int64_t balance_room(const OperandShape& index, std::int64_t routes) {
  return cuda::balance_workspace(
      {index.dims[0].extent, index.dims[1].extent, index.dims[2].extent, routes, false, 0, 0});
}

std::int64_t balance_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::Balance> s(shape);
  return balance_room(s["index"], s["counts"].dims[1].extent);
}

std::int64_t balance_grad_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::BalanceGrad> s(shape);
  return balance_room(s["index"], s["logits"].dims[2].extent);
}

}  // namespace

std::vector<DeviceOp> balance_ops(const OpChoices&) {
  return {{{ops::Balance::kind, select_balance, balance_workspace}},
          {{ops::BalanceGrad::kind, select_balance_grad, balance_grad_workspace}},
          {{ops::Steer::kind, select_steer}}};
}

}  // namespace prun::cuda
