// Launches experts and its gradients, whose halves the device computes together where they follow each other.
#include "experts/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/experts.hpp"

namespace prun::cuda {
namespace {

template <class Op>
ExpertsShape shape_of_experts(const ArgsOf<Op>& op) {
  const Tensor &index = op["index"], &up = op["up"];
  return {index.outer(1), index.inner(1), up.dim[0], up.start[0], up.dim[3], up.dim[2]};
}

template <class T, class Op>
ExpertsInputs<T> experts_inputs(const ArgsOf<Op>& op) {
  return {.x = op["x"].template as<const T>(),
          .index = op["index"].template as<const std::int32_t>(),
          .weight = op["weight"].template as<const Compute<T>>(),
          .up = op["up"].template as<const T>(),
          .down = op["down"].template as<const T>(),
          .kept = op["kept"].template as<T>()};
}

template <class T>
void experts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Experts> op(args);
  cuda::experts<T>(experts_inputs<T>(op), op["y"].as<T>(), shape_of_experts(op), args.workspace,
                   stream_of(context));
}

template <class T, class S, class Op>
void experts_gradients(const ArgsOf<Op>& op, const ExpertsGradients<T, S>& out,
                       const KernelContext& context) {
  const KernelArgs& args = op;
  cuda::experts_grads<T, S>(experts_inputs<T>(op), op["dy"].template as<const T>(), out, shape_of_experts(op),
                            args.workspace, stream_of(context));
}

template <class T>
void experts_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::ExpertsGrad> op(args);
  experts_gradients<T, C>(op, {.dx = op["dx"].as<T>(), .dweight = op["dweight"].as<C>()}, context);
}

template <class T, class S>
void experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertsWeightGrad> op(args);
  experts_gradients<T, S>(op, {.dup = sum_in<S>(op, "dup"), .ddown = sum_in<S>(op, "ddown")}, context);
}

template <class T, class S>
void experts_grads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertsGrads> op(args);
  experts_gradients<T, S>(op,
                          {.dx = op["dx"].as<T>(),
                           .dweight = op["dweight"].as<Compute<T>>(),
                           .dup = sum_in<S>(op, "dup"),
                           .ddown = sum_in<S>(op, "ddown")},
                          context);
}

// Checks the types of operands that all these ops read; `y`, or its gradient, has the values' type as well.
template <class Op>
bool experts_types(const ShapeOf<Op>& s, OperandOf<Op> y) {
  return same_type(s, {"x", "up", "down", y}) && same_type(s, {"x", "kept"}) &&
         s["index"].dtype == DType::i32 && computed_type(s, s["x"].dtype, {"weight"});
}

template <class Op>
bool experts_gradient_types(const ShapeOf<Op>& s) {
  return experts_types(s, "dy") && same_type(s, {"x", "dx"}) && same_type(s, {"weight", "dweight"});
}

Kernel select_experts(const OpShape& shape) {
  const ShapeOf<ops::Experts> s(shape);
  if (!experts_types(s, "y")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return experts<T>; });
}

Kernel select_experts_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrad> s(shape);
  if (!experts_gradient_types(s)) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

Kernel select_experts_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsWeightGrad> s(shape);
  if (!experts_types(s, "dy")) return nullptr;
  return by_sum(s, "x", {"dup", "ddown"},
                []<class T, class S>() -> Kernel { return experts_weight_grad<T, S>; });
}

Kernel select_experts_grads(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrads> s(shape);
  if (!experts_gradient_types(s)) return nullptr;
  return by_sum(s, "x", {"dup", "ddown"}, []<class T, class S>() -> Kernel { return experts_grads<T, S>; });
}

template <bool gradients, class Op>
std::int64_t experts_room(const OpShape& all, std::int32_t) {
  const ShapeOf<Op> s(all);
  const OperandShape &index = s["index"], &up = s["up"];
  const std::int64_t choices = index.dims[index.rank - 1].extent;
  const ExpertsShape shape{index.elements() / choices, choices,          up.dims[0].extent, 0,
                           up.dims[3].extent,          up.dims[2].extent};
  return cuda::experts_workspace(shape, size_of(s["x"].dtype), gradients, s.has("kept"));
}

}  // namespace

std::vector<DeviceOp> experts_ops(const OpChoices&) {
  using namespace ops;
  return {{{Experts::kind, select_experts, experts_room<false, Experts>}},
          {{ExpertsGrad::kind, select_experts_grad, experts_room<true, ExpertsGrad>}},
          {{ExpertsWeightGrad::kind, select_experts_weight_grad, experts_room<true, ExpertsWeightGrad>,
            bits_of<ExpertsWeightGrad>("dup", "ddown")}},
          {{ExpertsGrads::kind, select_experts_grads, experts_room<true, ExpertsGrads>,
            bits_of<ExpertsGrads>("dup", "ddown")}}};
}

}  // namespace prun::cuda
