// Launches attention_biased and its gradient, by kernels of our own: where buckets of distances begin is
// found once, when they are bound.
#include "attention/cuda_biased.hpp"

#include "device_op.hpp"
#include "prun/ops/attention_biased.hpp"

namespace prun::cuda {
namespace {

// Takes the shape from q[batch, seq, heads, queries, head_dim].
template <class Op>
AttentionShape biased_shape(const ArgsOf<Op>& op) {
  const Tensor& q = op["q"];
  return {.batch = q.dim[0],
          .seq = q.dim[1],
          .heads = q.dim[2],
          .queries = q.dim[3],
          .head_dim = q.dim[4],
          .causal = op.integer("causal") != 0};
}

template <class Op>
AttentionShape biased_shape(const ShapeOf<Op>& s) {
  const Dim* const dims = s["q"].dims;
  return {.batch = dims[0].extent,
          .seq = dims[1].extent,
          .heads = dims[2].extent,
          .queries = dims[3].extent,
          .head_dim = dims[4].extent};
}

template <class T, class Op>
DistanceBias<T> distance_bias(const ArgsOf<Op>& op, const AttentionShape& shape) {
  const Tensor& table = op["table"];
  const RelativeBuckets buckets{table.dim[1], op.integer("distance"), shape.causal};
  return {table.as<const T>(), bounds_of(buckets, shape.seq), op.real("scale")};
}

constexpr auto bind_biased = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::AttentionBiased> op(args);
  const AttentionShape shape = biased_shape(op);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  const AttentionForward<T> own{.shape = shape,
                                .q = {op["q"].as<const T>(), queries},
                                .k = {op["k"].as<const T>(), keys},
                                .v = {op["v"].as<const T>(), keys},
                                .y = {op["y"].as<T>(), queries},
                                .lse = op["lse"].as<Compute<T>>(),
                                .workspace = args.workspace};
  const BiasedForward<T> call{own, distance_bias<T>(op, shape), tensor_form(own)};
  return [call](Stream on) { attention_biased(call, on); };
};

constexpr auto bind_biased_grad = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::AttentionBiasedGrad> op(args);
  const AttentionShape shape = biased_shape(op);
  const HeadStrides queries = head_strides(shape, shape.queries), keys = head_strides(shape, 1);
  const AttentionBackward<T> own{.shape = shape,
                                 .dy = {op["dy"].as<const T>(), queries},
                                 .q = {op["q"].as<const T>(), queries},
                                 .k = {op["k"].as<const T>(), keys},
                                 .v = {op["v"].as<const T>(), keys},
                                 .y = {op["y"].as<const T>(), queries},
                                 .lse = op["lse"].as<const Compute<T>>(),
                                 .dq = {op["dq"].as<T>(), queries},
                                 .dk = {op["dk"].as<T>(), keys},
                                 .dv = {op["dv"].as<T>(), keys},
                                 .workspace = args.workspace};
  const BiasedBackward<T> call{own, distance_bias<T>(op, shape), op["dtable"].as<T>(), tensor_form(own)};
  return [call](Stream on) { attention_biased_backward(call, on); };
};

std::int64_t biased_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::AttentionBiased> s(shape);
  return by_value(s["q"].dtype,
                  [&]<class T>() -> std::int64_t { return attention_biased_workspace<T>(biased_shape(s)); });
}

std::int64_t biased_grad_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::AttentionBiasedGrad> s(shape);
  return by_value(s["q"].dtype, [&]<class T>() -> std::int64_t {
    return attention_biased_backward_workspace<T>(biased_shape(s), s["table"].dims[1].extent);
  });
}

Kernel select_attention_biased(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiased> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "table", "y"}) || !computed_type(s, type, {"lse"})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_attention_biased_grad(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiasedGrad> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"dy", "q", "k", "v", "table", "y", "dq", "dk", "dv", "dtable"}) ||
      !computed_type(s, type, {"lse"}))
    return nullptr;
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

}  // namespace

std::vector<DeviceOp> attention_biased_ops(const OpChoices&) {
  using namespace ops;
  return {{{AttentionBiased::kind, select_attention_biased, biased_workspace}, bind_typed<bind_biased>},
          {{AttentionBiasedGrad::kind, select_attention_biased_grad, biased_grad_workspace},
           bind_typed<bind_biased_grad>}};
}

}  // namespace prun::cuda
