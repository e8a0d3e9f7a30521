// Launches experts and its gradients, whose halves the device computes together where they follow each other;
// biased_experts and expert_biases with theirs.
#include "experts/cuda.hpp"

#include "device_op.hpp"
#include "experts/cuda_biases.hpp"
#include "prun/ops/experts.hpp"

namespace prun::cuda {
namespace {

template <class Op>
ExpertsShape shape_of_experts(const ArgsOf<Op>& op) {
  const Tensor &index = op["index"], &up = op["up"];
  return {index.outer(1), index.inner(1), up.dim[0], up.start[0], up.dim[3], up.dim[2]};
}

template <class T, class Op>
ExpertsInputs<T> read_inputs(const ArgsOf<Op>& op) {
  return {.x = op["x"].template as<const T>(),
          .index = op["index"].template as<const std::int32_t>(),
          .weight = op["weight"].template as<const Compute<T>>(),
          .up = op["up"].template as<const T>(),
          .down = op["down"].template as<const T>()};
}

template <class T, class Op>
ExpertsInputs<T> experts_inputs(const ArgsOf<Op>& op) {
  ExpertsInputs<T> in = read_inputs<T>(op);
  in.kept = op["kept"].template as<T>();
  return in;
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

template <class T, class Op>
ExpertsInputs<T> biased_inputs(const ArgsOf<Op>& op) {
  ExpertsInputs<T> in = read_inputs<T>(op);
  in.up_bias = op["up_bias"].template as<const T>();
  in.limit = op.real("limit");
  in.alpha = op.real("alpha");
  return in;
}

template <class T>
void biased_experts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasedExperts> op(args);
  cuda::experts<T>(biased_inputs<T>(op), op["y"].as<T>(), shape_of_experts(op), args.workspace,
                   stream_of(context));
}

template <class T>
void biased_experts_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::BiasedExpertsGrad> op(args);
  const ExpertsGradients<T> out{.dx = op["dx"].as<T>(), .dweight = op["dweight"].as<C>()};
  cuda::experts_grads<T, C>(biased_inputs<T>(op), op["dy"].as<const T>(), out, shape_of_experts(op),
                            args.workspace, stream_of(context));
}

template <class T, class S>
void biased_experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasedExpertsWeightGrad> op(args);
  const ExpertsGradients<T, S> out{
      .dup = sum_in<S>(op, "dup"), .ddown = sum_in<S>(op, "ddown"), .dup_bias = sum_in<S>(op, "dup_bias")};
  cuda::experts_grads<T, S>(biased_inputs<T>(op), op["dy"].as<const T>(), out, shape_of_experts(op),
                            args.workspace, stream_of(context));
}

template <class Op>
ExpertBiasesShape biases_shape(const ArgsOf<Op>& op) {
  const Tensor &index = op["index"], &bias = op["bias"];
  return {index.outer(1), index.inner(1), bias.dim[0], bias.start[0], bias.dim[1]};
}

template <class T>
void expert_biases(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertBiases> op(args);
  cuda::expert_biases<T>(op["index"].as<const std::int32_t>(), op["weight"].as<const Compute<T>>(),
                         op["bias"].as<const T>(), op["y"].as<T>(), biases_shape(op), stream_of(context));
}

template <class T>
void expert_biases_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertBiasesGrad> op(args);
  cuda::expert_biases_grad<T>(op["index"].as<const std::int32_t>(), op["bias"].as<const T>(),
                              op["dy"].as<const T>(), op["dweight"].as<Compute<T>>(), biases_shape(op),
                              stream_of(context));
}

template <class T, class S>
void expert_biases_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertBiasesWeightGrad> op(args);
  cuda::expert_biases_weight_grad<T, S>(op["index"].as<const std::int32_t>(),
                                        op["weight"].as<const Compute<T>>(), op["dy"].as<const T>(),
                                        sum_in<S>(op, "dbias"), biases_shape(op), stream_of(context));
}

// Checks the types of operands that all these ops read; `y`, or its gradient, and `further` have the values'
// type as well.
template <class Op>
bool experts_types(const ShapeOf<Op>& s, OperandOf<Op> y, OperandOf<Op> further) {
  return same_type(s, {"x", "up", "down", y, further}) && s["index"].dtype == DType::i32 &&
         computed_type(s, s["x"].dtype, {"weight"});
}

template <class Op>
bool experts_gradient_types(const ShapeOf<Op>& s, OperandOf<Op> further) {
  return experts_types(s, "dy", further) && same_type(s, {"x", "dx"}) && same_type(s, {"weight", "dweight"});
}

Kernel select_experts(const OpShape& shape) {
  const ShapeOf<ops::Experts> s(shape);
  if (!experts_types(s, "y", "kept")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return experts<T>; });
}

Kernel select_experts_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrad> s(shape);
  if (!experts_gradient_types(s, "kept")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

Kernel select_experts_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsWeightGrad> s(shape);
  if (!experts_types(s, "dy", "kept")) return nullptr;
  return by_sum(s, "x", {"dup", "ddown"},
                []<class T, class S>() -> Kernel { return experts_weight_grad<T, S>; });
}

Kernel select_experts_grads(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrads> s(shape);
  if (!experts_gradient_types(s, "kept")) return nullptr;
  return by_sum(s, "x", {"dup", "ddown"}, []<class T, class S>() -> Kernel { return experts_grads<T, S>; });
}

template <class Op>
bool bias_types(const ShapeOf<Op>& s, OperandOf<Op> y) {
  return same_type(s, {"bias", y}) && s["index"].dtype == DType::i32 &&
         computed_type(s, s["bias"].dtype, {"weight"});
}

Kernel select_biased(const OpShape& shape) {
  const ShapeOf<ops::BiasedExperts> s(shape);
  if (!experts_types(s, "y", "up_bias")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return biased_experts<T>; });
}

Kernel select_biased_grad(const OpShape& shape) {
  const ShapeOf<ops::BiasedExpertsGrad> s(shape);
  if (!experts_gradient_types(s, "up_bias")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return biased_experts_grad<T>; });
}

Kernel select_biased_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::BiasedExpertsWeightGrad> s(shape);
  if (!experts_types(s, "dy", "up_bias")) return nullptr;
  return by_sum(s, "x", {"dup", "ddown", "dup_bias"},
                []<class T, class S>() -> Kernel { return biased_experts_weight_grad<T, S>; });
}

Kernel select_biases(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiases> s(shape);
  if (!bias_types(s, "y")) return nullptr;
  return by_value(s["bias"].dtype, []<class T>() -> Kernel { return expert_biases<T>; });
}

Kernel select_biases_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiasesGrad> s(shape);
  if (!bias_types(s, "dy") || !same_type(s, {"weight", "dweight"})) return nullptr;
  return by_value(s["bias"].dtype, []<class T>() -> Kernel { return expert_biases_grad<T>; });
}

Kernel select_biases_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiasesWeightGrad> s(shape);
  if (!bias_types(s, "dy")) return nullptr;
  return by_sum(s, "bias", {"dbias"},
                []<class T, class S>() -> Kernel { return expert_biases_weight_grad<T, S>; });
}

template <class Op>
std::int64_t room_for(const ShapeOf<Op>& s, bool gradients, bool kept) {
  const OperandShape &index = s["index"], &up = s["up"];
  const std::int64_t choices = index.dims[index.rank - 1].extent;
  const ExpertsShape shape{index.elements() / choices, choices,          up.dims[0].extent, 0,
                           up.dims[3].extent,          up.dims[2].extent};
  return cuda::experts_workspace(shape, size_of(s["x"].dtype), gradients, kept);
}

template <bool gradients, class Op>
std::int64_t experts_room(const OpShape& all, std::int32_t) {
  const ShapeOf<Op> s(all);
  return room_for(s, gradients, s.has("kept"));
}

template <bool gradients, class Op>
std::int64_t biased_room(const OpShape& all, std::int32_t) {
  return room_for(ShapeOf<Op>(all), gradients, false);
}

}  // namespace

std::vector<DeviceOp> experts_ops(const OpChoices&) {
  using namespace ops;
  return {
      {{Experts::kind, select_experts, experts_room<false, Experts>}},
      {{ExpertsGrad::kind, select_experts_grad, experts_room<true, ExpertsGrad>}},
      {{ExpertsWeightGrad::kind, select_experts_weight_grad, experts_room<true, ExpertsWeightGrad>,
        bits_of<ExpertsWeightGrad>("dup", "ddown")}},
      {{ExpertsGrads::kind, select_experts_grads, experts_room<true, ExpertsGrads>,
        bits_of<ExpertsGrads>("dup", "ddown")}},
      {{BiasedExperts::kind, select_biased, biased_room<false, BiasedExperts>}},
      {{BiasedExpertsGrad::kind, select_biased_grad, biased_room<true, BiasedExpertsGrad>}},
      {{BiasedExpertsWeightGrad::kind, select_biased_weight_grad, biased_room<true, BiasedExpertsWeightGrad>,
        bits_of<BiasedExpertsWeightGrad>("dup", "ddown", "dup_bias")}},
      {{ExpertBiases::kind, select_biases}},
      {{ExpertBiasesGrad::kind, select_biases_grad}},
      {{ExpertBiasesWeightGrad::kind, select_biases_weight_grad, nullptr,
        bits_of<ExpertBiasesWeightGrad>("dbias")}}};
}

}  // namespace prun::cuda
