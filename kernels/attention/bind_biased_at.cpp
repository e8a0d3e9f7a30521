// Launches attention_biased_at.
#include "attention/cuda_at.hpp"

#include "device_op.hpp"
#include "prun/ops/attention_biased.hpp"

namespace prun::cuda {
namespace {

// Where buckets of distances begin is found once, when it is bound.
constexpr auto bind_biased_at = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::AttentionBiasedAt> op(args);
  const Tensor &q = op["q"], &kept = op["kept_k"], &table = op["table"];
  const AttentionAt<T> call{q.dim[0],
                            q.dim[1],
                            kept.dim[1],
                            q.dim[2],
                            q.dim[3],
                            q.dim[4],
                            q.as<const T>(),
                            op["k"].as<const T>(),
                            op["v"].as<const T>(),
                            op["position"].as<const double>(),
                            kept.as<T>(),
                            op["kept_v"].as<T>(),
                            op["y"].as<T>(),
                            op["lse"].as<Compute<T>>()};
  const RelativeBuckets buckets{table.dim[1], op.integer("distance"), true};
  const DistanceBias<T> bias{table.as<const T>(), bounds_of(buckets, kept.dim[1]), op.real("scale")};
  return [call, bias](Stream on) { attention_biased_at(call, bias, on); };
};

Kernel select_attention_biased_at(const OpShape& shape) {
  const ShapeOf<ops::AttentionBiasedAt> s(shape);
  const OperandShape& q = s["q"];
  if (!same_type(s, {"q", "k", "v", "table", "kept_k", "kept_v", "y"}) ||
      !computed_type(s, q.dtype, {"lse"}) || !all_double(s, {"position"}))
    return nullptr;
  if (q.dims[4].extent > widest_head_at) return nullptr;
  return by_value(q.dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

}  // namespace

std::vector<DeviceOp> attention_biased_at_ops(const OpChoices&) {
  return {{{ops::AttentionBiasedAt::kind, select_attention_biased_at}, bind_typed<bind_biased_at>}};
}

}  // namespace prun::cuda
