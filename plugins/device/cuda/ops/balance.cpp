// Launches balance, its gradient, and steer.
#include "cuda/balance.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

BalanceShape shape_of(const KernelArgs& args, std::int64_t routes) {
  const Tensor& index = args.operands[1];
  return {index.dim[0],         index.dim[1],    index.dim[2],   routes,
          args.attrs[0].i != 0, args.attrs[1].f, args.attrs[2].f};
}

template <class C>
void balance(const KernelArgs& args, const KernelContext& context) {
  const std::int64_t routes = args.operands[4].dim[1];
  double* const losses = data<double>(args, 5);
  cuda::balance<C>(data<const C>(args, 0), data<const std::int32_t>(args, 1),
                   data<const std::int32_t>(args, 2), data<const double>(args, 3),
                   data<double>(args, 4) + args.layer * routes, losses ? losses + args.layer * 2 : nullptr,
                   shape_of(args, routes), args.workspace, stream_of(context));
}

template <class C>
void balance_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::balance_grad<C>(data<const C>(args, 0), data<const std::int32_t>(args, 1),
                        data<const std::int32_t>(args, 2), data<const double>(args, 3), data<C>(args, 4),
                        shape_of(args, args.operands[0].dim[2]), args.workspace, stream_of(context));
}

template <class C>
void steer(const KernelArgs& args, const KernelContext& context) {
  const std::int64_t routes = args.operands[0].dim[1];
  cuda::steer<C>(data<const double>(args, 0) + args.layer * routes, data<const double>(args, 1),
                 data<C>(args, 2), routes, args.attrs[0].f, stream_of(context));
}

template <Kernel in_double, Kernel in_float>
Kernel by_score(DType type) {
  return type == DType::f64 ? in_double : type == DType::f32 ? in_float : nullptr;
}

bool number_types(const OpShape& s) {
  return have_type(s, DType::i32, {1, 2}) && s.operand[3].dtype == DType::f64;
}

Kernel select_balance(const OpShape& s) {
  if (!number_types(s) || !have_type(s, DType::f64, {4, 5})) return nullptr;
  return by_score<balance<double>, balance<float>>(s.operand[0].present ? s.operand[0].dtype : DType::f64);
}

Kernel select_balance_grad(const OpShape& s) {
  if (!number_types(s) || !same_type(s, {0, 4})) return nullptr;
  return by_score<balance_grad<double>, balance_grad<float>>(s.operand[0].dtype);
}

Kernel select_steer(const OpShape& s) {
  if (!have_type(s, DType::f64, {0, 1})) return nullptr;
  return by_score<steer<double>, steer<float>>(s.operand[2].dtype);
}

std::int64_t balance_room(const OpShape& s, std::int64_t routes) {
  const OperandShape& index = s.operand[1];
  return cuda::balance_workspace(
      {index.dims[0].extent, index.dims[1].extent, index.dims[2].extent, routes, false, 0, 0});
}

}  // namespace

std::vector<DeviceOp> balance_ops(const OpChoices&) {
  return {{{"balance", select_balance,
            [](const OpShape& s, std::int32_t) { return balance_room(s, s.operand[4].dims[1].extent); }}},
          {{"balance_grad", select_balance_grad,
            [](const OpShape& s, std::int32_t) { return balance_room(s, s.operand[0].dims[2].extent); }}},
          {{"steer", select_steer}}};
}

}  // namespace prun::cuda
