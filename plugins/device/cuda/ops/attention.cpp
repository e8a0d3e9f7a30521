// attention and attention_grad, of queries, keys and values apart: by cuDNN where it takes their shape.
#include "cuda/attention.hpp"

#include <algorithm>

#include "device_op.hpp"
#include "libraries.hpp"

namespace prun::cuda {
namespace {

// Of q[batch, seq, heads, queries, head_dim].
AttentionShape shape_of(const Tensor& q, const KernelArgs& args) {
  return {.batch = q.dim[0],
          .seq = q.dim[1],
          .heads = q.dim[2],
          .queries = q.dim[3],
          .head_dim = q.dim[4],
          .causal = args.attrs[0].i != 0};
}

template <class T>
AttentionForward<T> forward_of(const KernelArgs& args) {
  const AttentionShape shape = shape_of(args.operands[0], args);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  return {.shape = shape,
          .q = {data<const T>(args, 0), queries},
          .k = {data<const T>(args, 1), keys},
          .v = {data<const T>(args, 2), keys},
          .y = {data<T>(args, 3), queries},
          .lse = data<Compute<T>>(args, 4),
          .workspace = args.workspace};
}

template <class T>
AttentionBackward<T> backward_of(const KernelArgs& args) {
  const AttentionShape shape = shape_of(args.operands[1], args);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  return {.shape = shape,
          .dy = {data<const T>(args, 0), queries},
          .q = {data<const T>(args, 1), queries},
          .k = {data<const T>(args, 2), keys},
          .v = {data<const T>(args, 3), keys},
          .y = {data<const T>(args, 4), queries},
          .lse = data<const Compute<T>>(args, 5),
          .dq = {data<T>(args, 6), queries},
          .dk = {data<T>(args, 7), keys},
          .dv = {data<T>(args, 8), keys},
          .workspace = args.workspace};
}

template <class T>
void attention(const KernelArgs& args, const KernelContext& context) {
  cuda::attention(forward_of<T>(args), stream_of(context));
}

template <class T>
void attention_grad(const KernelArgs& args, const KernelContext& context) {
  attention_backward(backward_of<T>(args), stream_of(context));
}

template <class Call>
AttentionLayout layout_of(const Call& call) {
  return {call.shape, call.q.strides, call.k.strides, call.v.strides, call.y.strides};
}

// What cuDNN can do it does; where it is not there, our own kernels.
Work bind_attention(Launches launches, Libraries& libraries, Stream) {
  const AttentionForward<bf16> call = forward_of<bf16>(launches.front().args);
  CudnnAttention* const cudnn = libraries.cudnn();
  if (!cudnn) return [call](Stream stream) { cuda::attention(call, stream); };
  return [cudnn, plan = libraries.attention(layout_of(call), false), call](Stream stream) {
    cudnn->run(*plan, call, stream);
  };
}

Work bind_attention_grad(Launches launches, Libraries& libraries, Stream) {
  const AttentionBackward<bf16> call = backward_of<bf16>(launches.front().args);
  CudnnAttention* const cudnn = libraries.cudnn();
  if (!cudnn) return [call](Stream stream) { attention_backward(call, stream); };
  return [cudnn, plan = libraries.attention(layout_of(call), true), call](Stream stream) {
    cudnn->run(*plan, call, stream);
  };
}

// Of operand `q` of an op.
AttentionLayout layout_of(const OpShape& s, int q) {
  const Dim* dims = s.operand[q].dims;
  const AttentionShape shape{.batch = dims[0].extent,
                             .seq = dims[1].extent,
                             .heads = dims[2].extent,
                             .queries = dims[3].extent,
                             .head_dim = dims[4].extent,
                             .causal = s.attrs[0].i != 0};
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  return {shape, queries, keys, keys, queries};
}

bool cudnn_may(const OpShape& s, int q) {
  return s.operand[q].dtype == DType::bf16 && cudnn_refusal(layout_of(s, q)).empty();
}

std::int64_t workspace(const OpShape& s, std::int32_t) {
  return cudnn_may(s, 0) ? cudnn_workspace(layout_of(s, 0)) : 0;
}

// Enough for either.
std::int64_t grad_workspace(const OpShape& s, std::int32_t) {
  const AttentionLayout layout = layout_of(s, 1);
  const std::int64_t own = by_value(s.operand[1].dtype, [&]<class T>() -> std::int64_t {
    return attention_backward_workspace<T>(layout.shape);
  });
  return cudnn_may(s, 1) ? std::max(own, cudnn_backward_workspace(layout, true)) : own;
}

Kernel select_attention(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!same_type(s, {0, 1, 2, 3}) || !computed_type(s, type, {4})) return nullptr;
  if (cudnn_may(s, 0)) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention<T>; });
}

Kernel select_attention_grad(const OpShape& s) {
  const DType type = s.operand[1].dtype;
  if (!same_type(s, {0, 1, 2, 3, 4, 6, 7, 8}) || !computed_type(s, type, {5})) return nullptr;
  if (cudnn_may(s, 1)) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention_grad<T>; });
}

}  // namespace

std::vector<DeviceOp> attention_ops() {
  return {{{"attention", select_attention, workspace}, bind_attention},
          {{"attention_grad", select_attention_grad, grad_workspace}, bind_attention_grad}};
}

}  // namespace prun::cuda
