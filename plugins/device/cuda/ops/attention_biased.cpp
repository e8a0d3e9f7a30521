// Launches attention_biased and its gradient, by kernels of our own: where buckets of distances begin is
// found once, when they are bound.
#include "cuda/attention_biased.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Takes the shape from q[batch, seq, heads, queries, head_dim].
AttentionShape biased_shape(const Tensor& q, const KernelArgs& args) {
  return {.batch = q.dim[0],
          .seq = q.dim[1],
          .heads = q.dim[2],
          .queries = q.dim[3],
          .head_dim = q.dim[4],
          .causal = args.attrs[0].i != 0};
}

AttentionShape biased_shape(const OpShape& s, int q) {
  const Dim* const dims = s.operand[q].dims;
  return {.batch = dims[0].extent,
          .seq = dims[1].extent,
          .heads = dims[2].extent,
          .queries = dims[3].extent,
          .head_dim = dims[4].extent};
}

template <class T>
DistanceBias<T> distance_bias(const KernelArgs& args, int table, const AttentionShape& shape) {
  const RelativeBuckets buckets{args.operands[table].dim[1], args.attrs[1].i, shape.causal};
  return {data<const T>(args, table), bounds_of(buckets, shape.seq), args.attrs[2].f};
}

constexpr auto bind_biased = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const AttentionShape shape = biased_shape(args.operands[0], args);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  const BiasedForward<T> call{{.shape = shape,
                               .q = {data<const T>(args, 0), queries},
                               .k = {data<const T>(args, 1), keys},
                               .v = {data<const T>(args, 2), keys},
                               .y = {data<T>(args, 4), queries},
                               .lse = data<Compute<T>>(args, 5),
                               .workspace = args.workspace},
                              distance_bias<T>(args, 3, shape),
                              attention_form(shape)};
  return [call](Stream on) { attention_biased(call, on); };
};

constexpr auto bind_biased_grad = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const AttentionShape shape = biased_shape(args.operands[1], args);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  const BiasedBackward<T> call{{.shape = shape,
                                .dy = {data<const T>(args, 0), queries},
                                .q = {data<const T>(args, 1), queries},
                                .k = {data<const T>(args, 2), keys},
                                .v = {data<const T>(args, 3), keys},
                                .y = {data<const T>(args, 5), queries},
                                .lse = data<const Compute<T>>(args, 6),
                                .dq = {data<T>(args, 7), queries},
                                .dk = {data<T>(args, 8), keys},
                                .dv = {data<T>(args, 9), keys},
                                .workspace = args.workspace},
                               distance_bias<T>(args, 4, shape),
                               data<T>(args, 10),
                               attention_form(shape)};
  return [call](Stream on) { attention_biased_backward(call, on); };
};

std::int64_t biased_workspace(const OpShape& s, std::int32_t) {
  return by_value(s.operand[0].dtype, [&]<class T>() -> std::int64_t {
    return attention_biased_workspace<T>(biased_shape(s, 0));
  });
}

std::int64_t biased_grad_workspace(const OpShape& s, std::int32_t) {
  return by_value(s.operand[1].dtype, [&]<class T>() -> std::int64_t {
    return attention_biased_backward_workspace<T>(biased_shape(s, 1), s.operand[4].dims[1].extent);
  });
}

Kernel select_biased(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!same_type(s, {0, 1, 2, 3, 4}) || !computed_type(s, type, {5})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_biased_grad(const OpShape& s) {
  const DType type = s.operand[1].dtype;
  if (!same_type(s, {0, 1, 2, 3, 4, 5, 7, 8, 9, 10}) || !computed_type(s, type, {6})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

}  // namespace

std::vector<DeviceOp> attention_biased_ops(const OpChoices&) {
  return {
      {{"attention_biased", select_biased, biased_workspace}, bind_typed<bind_biased>},
      {{"attention_biased_grad", select_biased_grad, biased_grad_workspace}, bind_typed<bind_biased_grad>}};
}

}  // namespace prun::cuda
