#include "prun/ops/lm_head.hpp"

#include <vector>

#include "base/require.hpp"

namespace prun::ops {
namespace {

// Checks a head with a bias, or none, and what bounds its logits. `x` may have another name for its width
// than the weight has, as when the head has a projection of its own before a table that it shares.
template <class Op>
void check_head(const ShapeOf<Op>& s) {
  const OperandShape &x = s["x"], &w = s["weight"], &b = s["bias"];
  require(x.rank == 3 && w.rank == 2 && x.dims[2].extent == w.dims[1].extent, Op::kind,
          " takes x [batch, seq, width] and a weight [vocab, width]");
  require(s["targets"].dtype == DType::i32, Op::kind, " takes i32 targets [batch, seq]");
  require(!b.present || (b.rank == 1 && b.dims[0] == w.dims[0]), Op::kind, " takes a bias [vocab]");
  require(s.real("softcap") >= 0, Op::kind, " takes a softcap from 0 on, not ", s.real("softcap"));
}

// Marks both widths whole: behind the other marks, since they are one dimension nearly always.
template <class Op>
void keep_widths_whole(const RuleOf<Op>& s) {
  s.whole("weight", 1, 2);
  s.whole("x", 2, 3);
}

// States the rule of a head that has its vocabulary whole.
template <class Op>
void set_head(const RuleOf<Op>& s) {
  check_head(s);
  s.like("dx", "x");
  s.sum("x", 0, 2);
  s.whole("weight", 0, 1);
  keep_widths_whole(s);
}

// A head has its gradients in forward: those of weight and bias are added to accumulators.
template <class Op>
void pass_head_gradients(const GradientOf<Op>& g) {
  g.bind("dweight", g.accumulator("weight"));
  g.bind("dbias", g.accumulator("bias"));
  g.pass("x", g["dx"]);
}

// States the rule of what is found by row over one part of the vocabulary, which has `vocab` words in all.
template <class Op>
void set_head_scan(const RuleOf<Op>& s) {
  check_head(s);
  const OperandShape &x = s["x"], &w = s["weight"];
  require(s.integer("vocab") == w.dims[0].extent, Op::kind, ": `vocab` is ", s.integer("vocab"),
          ", but the whole weight has ", w.dims[0].extent, " rows");
  for (const auto result : OperandsOf<Op>{"max", "sum", "hit"})
    s.output(result, OpShape::statistics(x.dtype), x.dims, 2);
  s.sum("weight", 0, 1);
  keep_widths_whole(s);
}

// States the rule of the loss that ranks make of what all of them found.
template <class Op>
void set_head_loss(const RuleOf<Op>& s) {
  require(s["gmax"].rank == 2, Op::kind, " takes gmax, scaled and hit [batch, seq]");
  require(s["targets"].dtype == DType::i32, Op::kind, " takes i32 targets [batch, seq]");
  s.like("lse", "gmax");
  s.sum("gmax", 0, 2);
}

// States the rule of the gradients over one part of the vocabulary.
template <class Op>
void set_head_gradients(const RuleOf<Op>& s) {
  check_head(s);
  s.like("dx", "x");
  s.sum("x", 0, 2);
  s.sum("weight", 0, 1);
  keep_widths_whole(s);
}

// Counts one of these products.
template <class Op>
double product_flops(const ShapeOf<Op>& s) {
  const OperandShape& x = s["x"];
  return 2.0 * static_cast<double>(x.dims[0].extent * x.dims[1].extent) *
         static_cast<double>(s["weight"].elements());
}

void check_regularized(double z, double smoothing, const char* kind) {
  require(z >= 0 && smoothing >= 0 && smoothing < 1, kind, ": z is ", z, " and smoothing ", smoothing,
          "; z is 0 or more, smoothing lies in [0, 1)");
}

// Names an op of a head's split form, and what it gets.
struct HeadPart {
  const char* kind;
  std::initializer_list<AttrValue> attrs;
};

template <class Op>
AttrValue words_of(const SplitOf<Op>& s) {
  return {"vocab", static_cast<double>(s.shape()["weight"].dims[0].extent)};
}

// Splits the head if the vocabulary is split: into ops that say what ranks must know of each other's logits.
// Sums over the axes (of scaled, hit and dx) are not written: they follow from where it lies.
template <class Op>
void split_head(const SplitOf<Op>& s, const HeadPart& scan, const HeadPart& loss, const HeadPart& grad) {
  if (s.dim() != s.shape()["weight"].dims[0].name) return;
  const Id x = s["x"], weight = s["weight"], targets = s["targets"], bias = s["bias"];
  const auto [max, sum, hit] = s.template create<3>(scan.kind, {x, weight, targets, bias}, scan.attrs);
  Id gmax = max;
  for (std::int32_t axis : s.axes())
    gmax = s.template create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
  const auto [scaled] = s.template create<1>("lm_head_rescale", {max, gmax, sum});
  const auto [lse] = s.template create<1>(loss.kind, {gmax, scaled, hit, targets, s["loss"]}, loss.attrs);
  s.emit(grad.kind, {x, weight, targets, lse, s["scale"], s["dweight"], s["dx"], bias, s["dbias"]},
         grad.attrs);
}

}  // namespace

void LmHead::rule(RuleOf<LmHead> s) { set_head(s); }

void LmHead::gradient(GradientOf<LmHead> g) { pass_head_gradients(g); }

void LmHead::split(SplitOf<LmHead> s) {
  const AttrValue softcap{"softcap", s.shape().real("softcap")};
  split_head(s, {"lm_head_scan", {words_of(s), softcap}}, {"lm_head_loss", {}}, {"lm_head_grad", {softcap}});
}

// Counts three products: logits, dx and dweight.
void LmHead::cost(ShapeOf<LmHead> s, OpCost& c) { c.flops = 3 * product_flops(s); }

void LmHeadGroups::rule(RuleOf<LmHeadGroups> s) {
  const OperandShape& sums = s["sums"];
  require(s["gmax"].rank == 2, kind, " takes gmax, scaled and hit [batch, seq]");
  require(s["targets"].dtype == DType::i32 && s["groups"].dtype == DType::i32, kind,
          " takes i32 targets and groups [batch, seq]");
  require(sums.rank == 3 && sums.dims[2].extent == 2 && sums.dtype == DType::f64, kind,
          " takes fp64 sums [layer, group, 2]");
  s.sum("gmax", 0, 2);
  s.whole("sums", 0, 3);
}

void LmHeadLogits::rule(RuleOf<LmHeadLogits> s) {
  const OperandShape &x = s["x"], &w = s["weight"];
  check_head(s);
  const Dim dims[] = {x.dims[0], w.dims[0]};
  s.output("logits", OpShape::statistics(x.dtype), dims, 2);
  s.sum("x", 1, 2);
  // A bounded logit is no sum of parts of the width.
  if (x.dims[2] == w.dims[1] && !s.has("bias") && s.real("softcap") == 0)
    s.sum("x", 2, 3);
  else
    keep_widths_whole(s);
}

void LmHeadLogits::cost(ShapeOf<LmHeadLogits> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(s["x"].dims[0].extent) * static_cast<double>(s["weight"].elements());
}

void LmHeadRegularized::rule(RuleOf<LmHeadRegularized> s) {
  set_head(s);
  check_regularized(s.real("z"), s.real("smoothing"), kind);
}

void LmHeadRegularized::gradient(GradientOf<LmHeadRegularized> g) { pass_head_gradients(g); }

void LmHeadRegularized::split(SplitOf<LmHeadRegularized> s) {
  const AttrValue words = words_of(s), z{"z", s.shape().real("z")},
                  smoothing{"smoothing", s.shape().real("smoothing")},
                  softcap{"softcap", s.shape().real("softcap")};
  split_head(s, {"lm_head_regularized_scan", {words, smoothing, softcap}}, {"lm_head_regularized_loss", {z}},
             {"lm_head_regularized_grad", {words, z, smoothing, softcap}});
}

void LmHeadRegularized::cost(ShapeOf<LmHeadRegularized> s, OpCost& c) { c.flops = 3 * product_flops(s); }

void LmHeadRegularizedScan::rule(RuleOf<LmHeadRegularizedScan> s) {
  set_head_scan(s);
  check_regularized(0, s.real("smoothing"), kind);
}

void LmHeadRegularizedScan::cost(ShapeOf<LmHeadRegularizedScan> s, OpCost& c) {
  c.flops = c.repeated = product_flops(s);
}

void LmHeadRegularizedLoss::rule(RuleOf<LmHeadRegularizedLoss> s) { set_head_loss(s); }

void LmHeadRegularizedGrad::rule(RuleOf<LmHeadRegularizedGrad> s) {
  set_head_gradients(s);
  check_regularized(s.real("z"), s.real("smoothing"), kind);
}

void LmHeadRegularizedGrad::cost(ShapeOf<LmHeadRegularizedGrad> s, OpCost& c) {
  c.flops = 3 * product_flops(s);
}

void LmHeadScan::rule(RuleOf<LmHeadScan> s) { set_head_scan(s); }

// lm_head_grad needs the logits again, and counts them.
void LmHeadScan::cost(ShapeOf<LmHeadScan> s, OpCost& c) { c.flops = c.repeated = product_flops(s); }

void LmHeadRescale::rule(RuleOf<LmHeadRescale> s) {
  s.like("scaled", "sum");
  s.pass_partial({"max", "sum"});
}

void LmHeadLoss::rule(RuleOf<LmHeadLoss> s) { set_head_loss(s); }

void LmHeadGrad::rule(RuleOf<LmHeadGrad> s) { set_head_gradients(s); }

// Counts three products, as in lm_head: logits, dx and dweight.
void LmHeadGrad::cost(ShapeOf<LmHeadGrad> s, OpCost& c) { c.flops = 3 * product_flops(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_ops() {
  using namespace ops;
  return {op_def<LmHead>(),
          op_def<LmHeadGroups>(),
          op_def<LmHeadLogits>(),
          op_def<LmHeadRegularized>(),
          op_def<LmHeadRegularizedScan>(),
          op_def<LmHeadRegularizedLoss>(),
          op_def<LmHeadRegularizedGrad>(),
          op_def<LmHeadScan>(),
          op_def<LmHeadRescale>(),
          op_def<LmHeadLoss>(),
          op_def<LmHeadGrad>()};
}

}  // namespace prun
