// Launches layernorm and rmsnorm; a norm's gradients of its input and of its weights are ops of their own.
#include "cuda/norm.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

int dims_in(const Attr& attr) { return static_cast<int>(attr.i); }

// `dims` counts the dimensions of a row.
template <class T>
NormForward<T> forward_of(const KernelArgs& args, int dims = 1) {
  NormForward<T> norm{};
  norm.x = data<const T>(args, 0);
  norm.gain = data<const T>(args, 1);
  norm.rows = args.operands[0].outer(dims);
  norm.width = args.operands[0].inner(dims);
  norm.eps = args.attrs[0].f;
  return norm;
}

template <class T>
void layernorm(const KernelArgs& args, const KernelContext& context) {
  NormForward<T> norm = forward_of<T>(args);
  norm.bias = data<const T>(args, 2);
  norm.y = data<T>(args, 3);
  norm.mean = data<Compute<T>>(args, 4);
  norm.rstd = data<Compute<T>>(args, 5);
  cuda::layernorm(norm, stream_of(context));
}

template <class T>
void rmsnorm(const KernelArgs& args, const KernelContext& context) {
  NormForward<T> norm = forward_of<T>(args, dims_in(args.attrs[2]));
  norm.offset = args.attrs[1].f;
  norm.y = data<T>(args, 2);
  norm.rstd = data<Compute<T>>(args, 3);
  cuda::rmsnorm(norm, stream_of(context));
}

template <class T, class S = Compute<T>>
NormBackward<T, S> backward_of(const KernelArgs& args, int dy, int x, int dims = 1) {
  NormBackward<T, S> norm{};
  norm.dy = data<const T>(args, dy);
  norm.x = data<const T>(args, x);
  norm.rows = args.operands[x].outer(dims);
  norm.width = args.operands[x].inner(dims);
  norm.workspace = args.workspace;
  return norm;
}

template <class T>
void layernorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  NormBackward<T> norm = backward_of<T>(args, 0, 1);
  norm.gain = data<const T>(args, 2);
  norm.mean = data<const Compute<T>>(args, 3);
  norm.rstd = data<const Compute<T>>(args, 4);
  norm.residual = data<const T>(args, 5);
  norm.dx = data<T>(args, 6);
  cuda::layernorm_backward(norm, stream_of(context));
}

template <class T, class S>
void layernorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  NormBackward<T, S> norm = backward_of<T, S>(args, 0, 1);
  norm.mean = data<const Compute<T>>(args, 2);
  norm.rstd = data<const Compute<T>>(args, 3);
  norm.dgain = sum_in<S>(args, 4);
  norm.dbias = sum_in<S>(args, 5);
  cuda::layernorm_backward(norm, stream_of(context));
}

template <class T>
void rmsnorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  NormBackward<T> norm = backward_of<T>(args, 0, 1, dims_in(args.attrs[1]));
  norm.offset = args.attrs[0].f;
  norm.gain = data<const T>(args, 2);
  norm.rstd = data<const Compute<T>>(args, 3);
  norm.residual = data<const T>(args, 4);
  norm.dx = data<T>(args, 5);
  cuda::rmsnorm_backward(norm, stream_of(context));
}

template <class T, class S>
void rmsnorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  NormBackward<T, S> norm = backward_of<T, S>(args, 0, 1, dims_in(args.attrs[0]));
  norm.rstd = data<const Compute<T>>(args, 2);
  norm.dgain = sum_in<S>(args, 3);
  cuda::rmsnorm_backward(norm, stream_of(context));
}

template <bool centered>
std::int64_t weight_grad_workspace(const OpShape& s, std::int32_t) {
  const OperandShape& x = s.operand[1];
  std::int64_t width = 1;
  for (int d = x.rank - (centered ? 1 : dims_in(s.attrs[0])); d < x.rank; ++d) width *= x.dims[d].extent;
  return by_value(x.dtype, [&]<class T>() -> std::int64_t {
    return norm_backward_workspace<T>(x.elements() / width, width);
  });
}

Kernel select_layernorm(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3}) || !computed_type(s, s.operand[0].dtype, {4, 5})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return layernorm<T>; });
}

Kernel select_layernorm_input_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 5, 6}) || !computed_type(s, s.operand[0].dtype, {3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return layernorm_input_grad<T>; });
}

Kernel select_layernorm_weight_grad(const OpShape& s) {
  if (!same_type(s, {0, 1}) || !computed_type(s, s.operand[0].dtype, {2, 3})) return nullptr;
  return by_sum(s, 0, {4, 5}, []<class T, class S>() -> Kernel { return layernorm_weight_grad<T, S>; });
}

Kernel select_rmsnorm(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !computed_type(s, s.operand[0].dtype, {3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rmsnorm<T>; });
}

Kernel select_rmsnorm_input_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 4, 5}) || !computed_type(s, s.operand[0].dtype, {3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rmsnorm_input_grad<T>; });
}

Kernel select_rmsnorm_weight_grad(const OpShape& s) {
  if (!same_type(s, {0, 1}) || !computed_type(s, s.operand[0].dtype, {2})) return nullptr;
  return by_sum(s, 0, {3}, []<class T, class S>() -> Kernel { return rmsnorm_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> norm_ops(const OpChoices&) {
  return {{{"layernorm", select_layernorm}},
          {{"layernorm_input_grad", select_layernorm_input_grad}},
          {{"layernorm_weight_grad", select_layernorm_weight_grad, weight_grad_workspace<true>,
            1u << 4 | 1u << 5}},
          {{"rmsnorm", select_rmsnorm}},
          {{"rmsnorm_input_grad", select_rmsnorm_input_grad}},
          {{"rmsnorm_weight_grad", select_rmsnorm_weight_grad, weight_grad_workspace<false>, 1u << 3}}};
}

}  // namespace prun::cuda
