// Launches layernorm and rmsnorm; a norm's gradients of its input and of its weights are ops of their own.
#include "norm/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/norm.hpp"

namespace prun::cuda {
namespace {

// `dims` counts the dimensions of a row.
template <class T, class Op>
NormForward<T> forward_of(const ArgsOf<Op>& op, std::int64_t dims = 1) {
  const Tensor &x = op["x"], &gain = op["gain"];
  NormForward<T> norm{};
  norm.x = x.as<const T>();
  norm.gain = gain.as<const T>();
  norm.rows = x.outer(static_cast<int>(dims));
  norm.width = x.inner(static_cast<int>(dims));
  norm.eps = op.real("eps");
  return norm;
}

template <class T>
void layernorm(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNorm> op(args);
  NormForward<T> norm = forward_of<T>(op);
  norm.bias = op["bias"].as<const T>();
  norm.y = op["y"].as<T>();
  norm.mean = op["mean"].as<Compute<T>>();
  norm.rstd = op["rstd"].as<Compute<T>>();
  cuda::layernorm(norm, stream_of(context));
}

template <class T>
void rmsnorm(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNorm> op(args);
  NormForward<T> norm = forward_of<T>(op, op.integer("dims"));
  norm.offset = op.real("offset");
  norm.y = op["y"].as<T>();
  norm.rstd = op["rstd"].as<Compute<T>>();
  cuda::rmsnorm(norm, stream_of(context));
}

template <class T, class S = Compute<T>>
NormBackward<T, S> backward_of(const KernelArgs& args, const Tensor& dy, const Tensor& x,
                               std::int64_t dims = 1) {
  NormBackward<T, S> norm{};
  norm.dy = dy.as<const T>();
  norm.x = x.as<const T>();
  norm.rows = x.outer(static_cast<int>(dims));
  norm.width = x.inner(static_cast<int>(dims));
  norm.workspace = args.workspace;
  return norm;
}

template <class T>
void layernorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNormInputGrad> op(args);
  NormBackward<T> norm = backward_of<T>(args, op["dy"], op["x"]);
  norm.gain = op["gain"].as<const T>();
  norm.mean = op["mean"].as<const Compute<T>>();
  norm.rstd = op["rstd"].as<const Compute<T>>();
  norm.residual = op["residual"].as<const T>();
  norm.dx = op["dx"].as<T>();
  cuda::layernorm_backward(norm, stream_of(context));
}

template <class T, class S>
void layernorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNormWeightGrad> op(args);
  NormBackward<T, S> norm = backward_of<T, S>(args, op["dy"], op["x"]);
  norm.mean = op["mean"].as<const Compute<T>>();
  norm.rstd = op["rstd"].as<const Compute<T>>();
  norm.dgain = sum_in<S>(op, "dgain");
  norm.dbias = sum_in<S>(op, "dbias");
  cuda::layernorm_backward(norm, stream_of(context));
}

template <class T>
void rmsnorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNormInputGrad> op(args);
  NormBackward<T> norm = backward_of<T>(args, op["dy"], op["x"], op.integer("dims"));
  norm.offset = op.real("offset");
  norm.gain = op["gain"].as<const T>();
  norm.rstd = op["rstd"].as<const Compute<T>>();
  norm.residual = op["residual"].as<const T>();
  norm.dx = op["dx"].as<T>();
  cuda::rmsnorm_backward(norm, stream_of(context));
}

template <class T, class S>
void rmsnorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNormWeightGrad> op(args);
  NormBackward<T, S> norm = backward_of<T, S>(args, op["dy"], op["x"], op.integer("dims"));
  norm.rstd = op["rstd"].as<const Compute<T>>();
  norm.dgain = sum_in<S>(op, "dgain");
  cuda::rmsnorm_backward(norm, stream_of(context));
}

std::int64_t weight_grad_workspace(const OperandShape& x, std::int64_t dims) {
  std::int64_t width = 1;
  for (int d = x.rank - static_cast<int>(dims); d < x.rank; ++d) width *= x.dims[d].extent;
  return by_value(x.dtype, [&]<class T>() -> std::int64_t {
    return norm_backward_workspace<T>(x.elements() / width, width);
  });
}

std::int64_t layernorm_workspace(const OpShape& shape, std::int32_t) {
  return weight_grad_workspace(ShapeOf<ops::LayerNormWeightGrad>(shape)["x"], 1);
}

std::int64_t rmsnorm_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::RmsNormWeightGrad> s(shape);
  return weight_grad_workspace(s["x"], s.integer("dims"));
}

Kernel select_layernorm(const OpShape& shape) {
  const ShapeOf<ops::LayerNorm> s(shape);
  if (!same_type(s, {"x", "gain", "bias", "y"}) || !computed_type(s, s["x"].dtype, {"mean", "rstd"}))
    return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return layernorm<T>; });
}

Kernel select_layernorm_input_grad(const OpShape& shape) {
  const ShapeOf<ops::LayerNormInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gain", "residual", "dx"}) ||
      !computed_type(s, s["dy"].dtype, {"mean", "rstd"}))
    return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return layernorm_input_grad<T>; });
}

Kernel select_layernorm_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::LayerNormWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x"}) || !computed_type(s, s["dy"].dtype, {"mean", "rstd"})) return nullptr;
  return by_sum(s, "dy", {"dgain", "dbias"},
                []<class T, class S>() -> Kernel { return layernorm_weight_grad<T, S>; });
}

Kernel select_rmsnorm(const OpShape& shape) {
  const ShapeOf<ops::RmsNorm> s(shape);
  if (!same_type(s, {"x", "gain", "y"}) || !computed_type(s, s["x"].dtype, {"rstd"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return rmsnorm<T>; });
}

Kernel select_rmsnorm_input_grad(const OpShape& shape) {
  const ShapeOf<ops::RmsNormInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gain", "residual", "dx"}) || !computed_type(s, s["dy"].dtype, {"rstd"}))
    return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return rmsnorm_input_grad<T>; });
}

Kernel select_rmsnorm_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::RmsNormWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x"}) || !computed_type(s, s["dy"].dtype, {"rstd"})) return nullptr;
  return by_sum(s, "dy", {"dgain"}, []<class T, class S>() -> Kernel { return rmsnorm_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> norm_ops(const OpChoices&) {
  return {{{ops::LayerNorm::kind, select_layernorm}},
          {{ops::LayerNormInputGrad::kind, select_layernorm_input_grad}},
          {{ops::LayerNormWeightGrad::kind, select_layernorm_weight_grad, layernorm_workspace,
            bits_of<ops::LayerNormWeightGrad>("dgain", "dbias")}},
          {{ops::RmsNorm::kind, select_rmsnorm}},
          {{ops::RmsNormInputGrad::kind, select_rmsnorm_input_grad}},
          {{ops::RmsNormWeightGrad::kind, select_rmsnorm_weight_grad, rmsnorm_workspace,
            bits_of<ops::RmsNormWeightGrad>("dgain")}}};
}

}  // namespace prun::cuda
