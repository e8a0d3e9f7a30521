// attention and its gradient, of queries, keys and values apart or packed. In bf16 it is bound: by cuDNN or
// our own kernels on tensor cores, whichever is faster, as far as they take the call.
#include "cuda/attention.hpp"

#include <algorithm>

#include "cuda/attention_at.hpp"
#include "cuda/tensor_attention.hpp"
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
          .causal = args.attrs[0].i != 0,
          .window = args.attrs[1].i};
}

// Queries, keys and values where they lie packed in x[batch, seq, heads, packed, head_dim].
template <class T>
struct Packed {
  Heads<T> q, k, v;

  Packed(T* x, const AttentionShape& shape) {
    const HeadStrides strides = head_strides(shape, shape.queries + 2);
    q = {x, strides};
    k = {x + shape.queries * shape.head_dim, strides};
    v = {x + (shape.queries + 1) * shape.head_dim, strides};
  }
};

AttentionShape packed_shape(const Tensor& x, const KernelArgs& args) {
  AttentionShape shape = shape_of(x, args);
  shape.queries = x.dim[3] - 2;
  return shape;
}

template <class T, bool packed>
AttentionForward<T> forward_of(const KernelArgs& args) {
  if constexpr (packed) {
    const AttentionShape shape = packed_shape(args.operands[0], args);
    const Packed<const T> x(data<const T>(args, 0), shape);
    return {.shape = shape,
            .q = x.q,
            .k = x.k,
            .v = x.v,
            .y = {data<T>(args, 1), head_strides(shape, shape.queries)},
            .lse = data<Compute<T>>(args, 2),
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 3)};
  } else {
    const AttentionShape shape = shape_of(args.operands[0], args);
    const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
    return {.shape = shape,
            .q = {data<const T>(args, 0), queries},
            .k = {data<const T>(args, 1), keys},
            .v = {data<const T>(args, 2), keys},
            .y = {data<T>(args, 3), queries},
            .lse = data<Compute<T>>(args, 4),
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 5)};
  }
}

template <class T, bool packed>
AttentionBackward<T> backward_of(const KernelArgs& args) {
  if constexpr (packed) {
    const AttentionShape shape = packed_shape(args.operands[1], args);
    const HeadStrides queries = head_strides(shape, shape.queries);
    const Packed<const T> x(data<const T>(args, 1), shape);
    const Packed<T> dx(data<T>(args, 4), shape);
    return {.shape = shape,
            .dy = {data<const T>(args, 0), queries},
            .q = x.q,
            .k = x.k,
            .v = x.v,
            .y = {data<const T>(args, 2), queries},
            .lse = data<const Compute<T>>(args, 3),
            .dq = dx.q,
            .dk = dx.k,
            .dv = dx.v,
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 5)};
  } else {
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
            .workspace = args.workspace,
            .documents = data<const std::int32_t>(args, 9)};
  }
}

template <class T, bool packed>
void attention(const KernelArgs& args, const KernelContext& context) {
  cuda::attention(forward_of<T, packed>(args), stream_of(context));
}

template <class T, bool packed>
void attention_grad(const KernelArgs& args, const KernelContext& context) {
  attention_backward(backward_of<T, packed>(args), stream_of(context));
}

template <class Call>
AttentionLayout layout_of(const Call& call) {
  return {call.shape, call.q.strides, call.k.strides, call.v.strides, call.y.strides};
}

void run(const AttentionForward<bf16>& call, AttentionForm form, Stream stream) {
  tensor_attention(call, form, stream);
}
void run(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream) {
  tensor_attention_backward(call, form, stream);
}
void run(const AttentionForward<bf16>& call, Stream stream) { cuda::attention(call, stream); }
void run(const AttentionBackward<bf16>& call, Stream stream) { attention_backward(call, stream); }

// Launching graphs with cuDNN's kernels fails now and then with "unknown error" (cuDNN 9.14 to 9.19, driver
// 580), as long as something else is under way: they stay out of them.
template <class Call>
Work cudnn_work(const Call& call, bool backward, CudnnAttention* cudnn, Libraries& libraries,
                Stream its_stream) {
  return Work([cudnn, plan = libraries.attention(layout_of(call), backward, its_stream),
               call](Stream) { cudnn->run(*plan, call); },
              false);
}

// Our general kernels are far slower than the others: they take what these cannot.
template <class Call>
Work bind_call(const Call& call, bool backward, Libraries& libraries, Stream stream) {
  const bool on_tensor_cores = tensor_attention_takes(call);
  const auto own = [&]() -> Work {
    if (!on_tensor_cores) return [call](Stream on) { run(call, on); };
    return [call, form = attention_form(call.shape)](Stream on) { run(call, form, on); };
  };
  CudnnAttention* const cudnn = libraries.cudnn();
  if (!cudnn || call.documents || !cudnn_refusal(layout_of(call)).empty()) return own();
  if (call.shape.window > 0 && !libraries.has_attention(layout_of(call), backward, stream)) return own();
  const auto by_cudnn = [&] { return cudnn_work(call, backward, cudnn, libraries, stream); };
  if (!on_tensor_cores) return by_cudnn();
  return libraries.cudnn_or_own(layout_of(call), backward, by_cudnn, own, stream);
}

template <bool packed>
Work bind_attention(Launches launches, Libraries& libraries, Stream stream) {
  return bind_call(forward_of<bf16, packed>(launches.front().args), false, libraries, stream);
}

template <bool packed>
Work bind_attention_grad(Launches launches, Libraries& libraries, Stream stream) {
  return bind_call(backward_of<bf16, packed>(launches.front().args), true, libraries, stream);
}

// Of an op's queries, or of its packed x.
template <bool packed>
AttentionLayout layout_of(const OpShape& s, int operand) {
  const Dim* dims = s.operand[operand].dims;
  const AttentionShape shape{.batch = dims[0].extent,
                             .seq = dims[1].extent,
                             .heads = dims[2].extent,
                             .queries = dims[3].extent - (packed ? 2 : 0),
                             .head_dim = dims[4].extent,
                             .causal = s.attrs[0].i != 0,
                             .window = s.attrs[1].i};
  const HeadStrides y = head_strides(shape, shape.queries), all = head_strides(shape, shape.queries + 2),
                    keys = head_strides(shape, 1);
  return packed ? AttentionLayout{shape, all, all, all, y} : AttentionLayout{shape, y, keys, keys, y};
}

// Not where documents are kept apart, whose operand is the last: that our own kernels do.
template <bool packed>
bool cudnn_may(const OpShape& s, int operand) {
  return s.operand[operand].dtype == DType::bf16 && !s.operand[s.count - 1].present &&
         cudnn_refusal(layout_of<packed>(s, operand)).empty();
}

template <bool packed>
std::int64_t workspace(const OpShape& s, std::int32_t) {
  return cudnn_may<packed>(s, 0) ? cudnn_workspace(layout_of<packed>(s, 0)) : 0;
}

// Enough for either. That of cuDNN's which gives the same bits every time grows with the square of the
// length.
template <bool packed, bool deterministic>
std::int64_t grad_workspace(const OpShape& s, std::int32_t) {
  const AttentionLayout layout = layout_of<packed>(s, 1);
  const std::int64_t own = by_value(s.operand[1].dtype, [&]<class T>() -> std::int64_t {
    return attention_backward_workspace<T>(layout.shape);
  });
  return cudnn_may<packed>(s, 1) ? std::max(own, cudnn_backward_workspace(layout, deterministic)) : own;
}

template <bool packed>
Kernel select_attention(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  const bool fits = packed ? same_type(s, {0, 1}) && computed_type(s, type, {2})
                           : same_type(s, {0, 1, 2, 3}) && computed_type(s, type, {4});
  if (!fits) return nullptr;
  if (type == DType::bf16) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention<T, packed>; });
}

template <bool packed>
Kernel select_attention_grad(const OpShape& s) {
  const DType type = s.operand[1].dtype;
  const bool fits = packed ? same_type(s, {0, 1, 2, 4}) && computed_type(s, type, {3})
                           : same_type(s, {0, 1, 2, 3, 4, 6, 7, 8}) && computed_type(s, type, {5});
  if (!fits) return nullptr;
  if (type == DType::bf16) return runs_when_bound;
  return by_value(type, []<class T>() -> Kernel { return attention_grad<T, packed>; });
}

template <class T>
void attention_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor &q = args.operands[0], &kept = args.operands[4];
  cuda::attention_at<T>(
      {q.dim[0], q.dim[1], kept.dim[1], q.dim[2], q.dim[3], q.dim[4], data<const T>(args, 0),
       data<const T>(args, 1), data<const T>(args, 2), data<const double>(args, 3), data<T>(args, 4),
       data<T>(args, 5), data<T>(args, 6), data<Compute<T>>(args, 7), args.attrs[1].i},
      stream_of(context));
}

Kernel select_attention_at(const OpShape& s) {
  const OperandShape& q = s.operand[0];
  if (!same_type(s, {0, 1, 2, 4, 5, 6}) || !computed_type(s, q.dtype, {7}) || !all_double(s, 3, 4))
    return nullptr;
  if (q.dims[4].extent > widest_head_at) return nullptr;
  return by_value(q.dtype, []<class T>() -> Kernel { return attention_at<T>; });
}

}  // namespace

std::vector<DeviceOp> attention_ops(const OpChoices& choices) {
  const bool deterministic = choices.deterministic;
  const auto bytes = deterministic ? grad_workspace<false, true> : grad_workspace<false, false>;
  const auto packed_bytes = deterministic ? grad_workspace<true, true> : grad_workspace<true, false>;
  std::vector<DeviceOp> ops = {
      {{"attention", select_attention<false>, workspace<false>}, bind_attention<false>},
      {{"attention_grad", select_attention_grad<false>, bytes}, bind_attention_grad<false>},
      {{"attention_packed", select_attention<true>, workspace<true>}, bind_attention<true>},
      {{"attention_packed_grad", select_attention_grad<true>, packed_bytes}, bind_attention_grad<true>}};
  ops.push_back({{"attention_at", select_attention_at}});
  return ops;
}

}  // namespace prun::cuda
