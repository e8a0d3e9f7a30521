// Launches the gated delta rule.
#include "delta_rule/cuda.hpp"

#include <algorithm>

#include "device_op.hpp"
#include "prun/ops/delta_rule.hpp"

namespace prun::cuda {
namespace {

// Describes queries and values by their extents.
template <class Operand, class Extent>
DeltaRuleSizes sizes_of(const Operand& q, const Operand& v, std::int64_t chunk, const Extent& extent) {
  const int last = q.rank - 1;
  const std::int64_t values = extent(v, last - 1) / extent(q, last - 1);
  DeltaRuleSizes sizes{extent(q, 0), extent(q, 1), 1, extent(q, last), values, extent(v, last), 0, {}};
  for (int d = 2; d < last; ++d) sizes.heads *= extent(q, d);
  sizes.chunk = std::min(chunk, sizes.seq);
  sizes.runs = SequenceRuns::whole(sizes.seq);
  return sizes;
}

std::int64_t extent_of(const Tensor& x, int d) { return x.dim[d]; }
std::int64_t extent_in(const OperandShape& x, int d) { return x.dims[d].extent; }

template <class Op>
DeltaRuleSizes sizes_in(const ArgsOf<Op>& op) {
  return sizes_of(op["q"], op["v"], op.integer("chunk"), extent_of);
}

// Does so for runs of which this rank has `q`, or keys of that shape; `all` counts those of all ranks.
template <class Op>
DeltaRuleSizes sizes_in_runs(const ArgsOf<Op>& op, OperandOf<Op> q, std::int64_t all) {
  const std::int64_t rows = op.integer("rows");
  DeltaRuleSizes sizes = sizes_of(op[q], op["v"], std::min(op.integer("chunk"), rows), extent_of);
  sizes.runs = SequenceRuns::of(op[q], rows, op.integer("chunks"));
  sizes.all_runs = all;
  sizes.documents = op["documents"].template as<const std::int32_t>();
  return sizes;
}

template <class T>
void delta_rule(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::DeltaRule> op(args);
  DeltaRuleForward<T> call{.sizes = sizes_in(op),
                           .q = op["q"].as<const T>(),
                           .k = op["k"].as<const T>(),
                           .v = op["v"].as<const T>(),
                           .g = op["g"].as<const C>(),
                           .beta = op["beta"].as<const C>(),
                           .y = op["y"].as<T>(),
                           .state = op["state"].as<C>(),
                           .workspace = args.workspace};
  call.sizes.documents = op["documents"].as<const std::int32_t>();
  cuda::delta_rule(call, stream_of(context));
}

template <class T, class Op>
DeltaRuleBackward<T> backward_of(const ArgsOf<Op>& op, const DeltaRuleSizes& sizes) {
  using C = Compute<T>;
  return {.sizes = sizes,
          .dy = op["dy"].template as<const T>(),
          .q = op["q"].template as<const T>(),
          .k = op["k"].template as<const T>(),
          .v = op["v"].template as<const T>(),
          .g = op["g"].template as<const C>(),
          .beta = op["beta"].template as<const C>(),
          .dq = op["dq"].template as<T>(),
          .dk = op["dk"].template as<T>(),
          .dv = op["dv"].template as<T>(),
          .dg = op["dg"].template as<C>(),
          .dbeta = op["dbeta"].template as<C>(),
          .workspace = static_cast<const KernelArgs&>(op).workspace};
}

template <class T>
void delta_rule_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaRuleGrad> op(args);
  DeltaRuleSizes sizes = sizes_in(op);
  sizes.documents = op["documents"].as<const std::int32_t>();
  cuda::delta_rule_backward(backward_of<T>(op, sizes), stream_of(context));
}

template <class T>
void delta_rule_at(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::DeltaRuleAt> op(args);
  cuda::delta_rule_at<T>({.sizes = sizes_in(op),
                          .q = op["q"].as<const T>(),
                          .k = op["k"].as<const T>(),
                          .v = op["v"].as<const T>(),
                          .g = op["g"].as<const C>(),
                          .beta = op["beta"].as<const C>(),
                          .position = op["position"].as<const double>(),
                          .kept = op["kept_state"].as<C>(),
                          .y = op["y"].as<T>(),
                          .state = op["state"].as<C>()},
                         stream_of(context));
}

template <class T>
void delta_rule_runs(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::DeltaRuleRuns> op(args);
  cuda::delta_rule<T>({.sizes = sizes_in_runs(op, "q", op["starts"].dim[1]),
                       .q = op["q"].as<const T>(),
                       .k = op["k"].as<const T>(),
                       .v = op["v"].as<const T>(),
                       .g = op["g"].as<const C>(),
                       .beta = op["beta"].as<const C>(),
                       .y = op["y"].as<T>(),
                       .state = nullptr,
                       .workspace = args.workspace,
                       .starts = op["starts"].as<const C>()},
                      stream_of(context));
}

template <class T>
void delta_rule_runs_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::DeltaRuleRunsGrad> op(args);
  DeltaRuleBackward<T> call = backward_of<T>(op, sizes_in_runs(op, "q", op["starts"].dim[1]));
  call.starts = op["starts"].as<const C>();
  call.ends = op["ends"].as<const C>();
  cuda::delta_rule_backward(call, stream_of(context));
}

template <class T>
void delta_maps(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::DeltaMaps> op(args);
  cuda::delta_maps<T>({.sizes = sizes_in_runs(op, "k", 0),
                       .k = op["k"].as<const T>(),
                       .v = op["v"].as<const T>(),
                       .g = op["g"].as<const C>(),
                       .beta = op["beta"].as<const C>(),
                       .q = op["q"].as<const T>(),
                       .dy = op["dy"].as<const T>(),
                       .maps = op["maps"].as<C>(),
                       .width = op["maps"].inner(1),
                       .workspace = args.workspace},
                      stream_of(context));
}

template <class C>
void delta_starts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaStarts> op(args);
  const Tensor& maps = op["maps"];
  const std::int64_t width = maps.inner(1);
  cuda::delta_starts<C>({.batch = maps.dim[0],
                         .runs = maps.dim[1],
                         .heads = maps.inner(maps.rank - 2) / width,
                         .key = op.integer("key_dim"),
                         .value = op.integer("value_dim"),
                         .width = width,
                         .back = op.integer("back") != 0},
                        maps.as<const C>(), op["starts"].as<C>(), stream_of(context));
}

Kernel select_forward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRule> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "y"}) || !computed_type(s, type, {"g", "beta", "state"})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_rule<T>; });
}

Kernel select_backward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleGrad> s(shape);
  const DType type = s["dy"].dtype;
  if (!same_type(s, {"dy", "q", "k", "v", "dq", "dk", "dv"}) ||
      !computed_type(s, type, {"g", "beta", "dg", "dbeta"}))
    return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_rule_grad<T>; });
}

Kernel select_at(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleAt> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "y"}) || !computed_type(s, type, {"g", "beta", "kept_state", "state"}))
    return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_rule_at<T>; });
}

// A rank has whole runs.
template <class Op>
bool has_runs(const ShapeOf<Op>& s, OperandOf<Op> q) {
  return s[q].dims[1].extent % s.integer("rows") == 0;
}

Kernel select_runs(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleRuns> s(shape);
  const DType type = s["q"].dtype;
  if (!same_type(s, {"q", "k", "v", "y"}) || !computed_type(s, type, {"g", "beta", "starts"}) ||
      !has_runs(s, "q"))
    return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_rule_runs<T>; });
}

Kernel select_runs_backward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleRunsGrad> s(shape);
  const DType type = s["dy"].dtype;
  if (!same_type(s, {"dy", "q", "k", "v", "dq", "dk", "dv"}) || !has_runs(s, "q") ||
      !computed_type(s, type, {"g", "beta", "starts", "ends", "dg", "dbeta"}))
    return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_rule_runs_grad<T>; });
}

Kernel select_maps(const OpShape& shape) {
  const ShapeOf<ops::DeltaMaps> s(shape);
  const DType type = s["k"].dtype;
  if (!same_type(s, {"k", "v"}) || !computed_type(s, type, {"g", "beta", "maps"}) || !has_runs(s, "k"))
    return nullptr;
  if (s.has("q") && !same_type(s, {"k", "q", "dy"})) return nullptr;
  return by_value(type, []<class T>() -> Kernel { return delta_maps<T>; });
}

Kernel select_starts(const OpShape& shape) {
  const ShapeOf<ops::DeltaStarts> s(shape);
  if (!same_type(s, {"maps", "starts"})) return nullptr;
  return s["maps"].dtype == DType::f64   ? delta_starts<double>
         : s["maps"].dtype == DType::f32 ? delta_starts<float>
                                         : nullptr;
}

template <class Op>
DeltaRuleSizes sizes_in(const ShapeOf<Op>& s) {
  return sizes_of(s["q"], s["v"], s.integer("chunk"), extent_in);
}

std::int64_t forward_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::DeltaRule> s(shape);
  const DeltaRuleSizes sizes = sizes_in(s);
  return by_value(s["q"].dtype, [&]<class T>() { return delta_rule_workspace<T>(sizes); });
}

std::int64_t backward_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::DeltaRuleGrad> s(shape);
  const DeltaRuleSizes sizes = sizes_in(s);
  return by_value(s["q"].dtype, [&]<class T>() { return delta_rule_backward_workspace<T>(sizes); });
}

// `all` counts the runs of all ranks where they have states to begin from.
template <class Op>
DeltaRuleSizes sizes_in_runs(const ShapeOf<Op>& s, OperandOf<Op> q, std::int64_t all) {
  const std::int64_t rows = s.integer("rows");
  DeltaRuleSizes sizes = sizes_of(s[q], s["v"], std::min(s.integer("chunk"), rows), extent_in);
  sizes.runs.rows = rows;
  sizes.all_runs = all;
  return sizes;
}

std::int64_t runs_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::DeltaRuleRuns> s(shape);
  const DeltaRuleSizes sizes = sizes_in_runs(s, "q", s["starts"].dims[1].extent);
  return s["q"].dtype == DType::f64 ? delta_rule_workspace<double>(sizes)
                                    : delta_rule_workspace<float>(sizes);
}

std::int64_t runs_backward_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::DeltaRuleRunsGrad> s(shape);
  const DeltaRuleSizes sizes = sizes_in_runs(s, "q", s["starts"].dims[1].extent);
  return s["q"].dtype == DType::f64 ? delta_rule_backward_workspace<double>(sizes)
                                    : delta_rule_backward_workspace<float>(sizes);
}

std::int64_t maps_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::DeltaMaps> s(shape);
  const DeltaRuleSizes sizes = sizes_in_runs(s, "k", 0);
  return s["k"].dtype == DType::f64 ? delta_maps_workspace<double>(sizes)
                                    : delta_maps_workspace<float>(sizes);
}

}  // namespace

std::vector<DeviceOp> delta_rule_ops(const OpChoices&) {
  return {{{ops::DeltaRule::kind, select_forward, forward_workspace}},
          {{ops::DeltaRuleGrad::kind, select_backward, backward_workspace}},
          {{ops::DeltaRuleAt::kind, select_at}},
          {{ops::DeltaMaps::kind, select_maps, maps_workspace}},
          {{ops::DeltaStarts::kind, select_starts}},
          {{ops::DeltaRuleRuns::kind, select_runs, runs_workspace}},
          {{ops::DeltaRuleRunsGrad::kind, select_runs_backward, runs_backward_workspace}}};
}

}  // namespace prun::cuda
