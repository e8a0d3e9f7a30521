#include "prun/ops/attention_biased.hpp"
#include "prun/named_gradient.hpp"

#include <vector>

#include "rules/at_position.hpp"
#include "rules/packed_heads.hpp"

namespace prun::ops {
namespace {

template <class Op>
void check_biased(const ShapeOf<Op>& s) {
  const OperandShape &queries = s["q"], &bias = s["table"];
  check_apart(s, Op::kind, {s.at("q"), s.at("k"), s.at("v")});
  require(bias.rank == 2 && bias.dims[0] == queries.dims[2] && bias.dtype == queries.dtype, Op::kind,
          " takes a table [heads, buckets]");
  const std::int64_t each = s.integer("causal") != 0 ? bias.dims[1].extent : bias.dims[1].extent / 2;
  require(each >= 2 && s.integer("distance") > each / 2, Op::kind,
          " takes 2 buckets or more in each direction, and a distance "
          "beyond the first half of them");
}

template <class Op>
void set_results(const RuleOf<Op>& s) {
  const OperandShape& q = s["q"];
  const Dim dims[] = {q.dims[0], q.dims[2], q.dims[3], q.dims[1]};
  s.like("y", "q");
  s.output("lse", OpShape::statistics(q.dtype), dims, 4);
}

template <class Op>
double biased_flops(const ShapeOf<Op>& s) {
  const OperandShape& q = s["q"];
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(q.dims[1].extent) *
         (s.integer("causal") != 0 ? 0.5 : 1.0);
}

}  // namespace

void AttentionBiased::rule(RuleOf<AttentionBiased> s) {
  check_biased(s);
  set_results(s);
  s.whole("q", 1, 2);
  s.whole("q", 4, 5);
  s.whole("table", 1, 2);
}

void AttentionBiased::gradient(GradientOf<AttentionBiased> g) {
  input_gradient<AttentionBiasedGrad>(
      g, {"q", "k", "v", "table"}, {{"dy", g.arrived("y")}},
      {{"causal", g.attr("causal")}, {"distance", g.attr("distance")}, {"scale", g.attr("scale")}});
}

void AttentionBiased::cost(ShapeOf<AttentionBiased> s, OpCost& c) { c.flops = biased_flops(s); }

void AttentionBiasedAt::rule(RuleOf<AttentionBiasedAt> s) {
  check_biased(s);
  require_position(s["q"], s["position"], kind);
  require(s.integer("causal") == 1, kind, " is causal: keys of later positions are not there yet");
  check_kept(s, "kept_k", "k");
  check_kept(s, "kept_v", "v");
  set_results(s);
  s.whole("q", 1, 2);
  s.whole("q", 3, 5);
  s.whole("table", 1, 2);
}

void AttentionBiasedAt::cost(ShapeOf<AttentionBiasedAt> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(s["q"].elements()) * static_cast<double>(s["kept_k"].dims[1].extent);
}

void AttentionBiasedGrad::rule(RuleOf<AttentionBiasedGrad> s) {
  check_biased(s);
  s.like("dq", "q");
  s.like("dk", "k");
  s.like("dv", "v");
  s.like("dtable", "table");
  s.sum("q", 0, 1);
  s.whole("q", 1, 2);
  s.sum("q", 3, 4);
  s.whole("q", 4, 5);
  s.whole("table", 1, 2);
}

void AttentionBiasedGrad::cost(ShapeOf<AttentionBiasedGrad> s, OpCost& c) { c.flops = 2.5 * biased_flops(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> attention_biased_ops() {
  using namespace ops;
  return {op_def<AttentionBiased>(), op_def<AttentionBiasedAt>(), op_def<AttentionBiasedGrad>()};
}

}  // namespace prun
