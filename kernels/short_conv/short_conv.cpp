#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/short_conv.hpp"
#include "prun/recurrent_state.hpp"
#include "rules/at_position.hpp"
#include "rules/positions.hpp"
#include "rules/run_shapes.hpp"

namespace prun::ops {
namespace {

// Checks x [batch, seq, channels..] and weight [channels.., one, taps].
void check_channels(OpShape& s, int x, int weight, const char* op) {
  const OperandShape &of = s.operand[x], &w = s.operand[weight];
  bool fits = of.rank >= 3 && w.rank == of.rank && w.dims[w.rank - 2].extent == 1;
  for (int d = 0; fits && d < of.rank - 2; ++d)
    fits = of.dims[2 + d] == w.dims[d] ||
           (of.dims[2 + d].name != w.dims[d].name && w.dims[d].extent % of.dims[2 + d].extent == 0);
  require(fits, op, " takes x [batch, seq, channels..] and a weight [channels.., 1, taps]");
  s.whole(weight, w.rank - 2, w.rank);
}

std::int64_t reach_of(const OpShape& s, int weight) {
  const OperandShape& w = s.operand[weight];
  return w.dims[w.rank - 1].extent - 1;
}

// Returns runs that are as long as what their first sums reach of the run before, if the sequence has such.
template <class Op>
Runs runs_of(const ShapeOf<Op>& s) {
  const Runs runs = Runs::of(s["x"], s.integer("runs"), s.integer("zigzag"), s.integer("over"));
  const std::int64_t reach = reach_of(s, s.at("weight"));
  return reach > 0 && runs.rows >= reach ? runs : Runs{};
}

// Does as check_channels, and marks the sequence, unless the op will be split into runs.
template <class Op>
void check_conv(RuleOf<Op> s) {
  check_channels(s, s.at("x"), s.at("weight"), Op::kind);
  check_documents(s, s.at("x"), s.at("documents"), Op::kind);
  if (runs_of(s).rows == 0) s.whole("x", 1, 2);
}

// Checks x with `ahead` positions in front of each run beside `own`, which has the runs alone.
void check_runs(OpShape& s, int x, int weight, int own, int documents, std::int64_t rows, const char* op) {
  check_channels(s, x, weight, op);
  check_rows(s, own, rows, op);
  check_documents(s, own, documents, op);
  require(s.operand[x].dims[1].extent == s.operand[own].dims[1].extent / rows * (rows + reach_of(s, weight)),
          op, " takes in front of each run the positions that its first sums reach");
}

void sum_all_but_channels(OpShape& s, int x, int weight) {
  s.sum(x, 0, 1);
  const OperandShape &of = s.operand[x], &w = s.operand[weight];
  for (int d = 2; d < of.rank; ++d)
    if (of.dims[d].name != w.dims[d - 2].name) s.sum(x, d, d + 1);
}

// Is the ops around a convolution in runs: x gets the positions in front of each run, of its own rank or of
// others, and gradients of these go back.
class ConvInRuns {
 public:
  template <class Op>
  explicit ConvInRuns(const SplitOf<Op>& s)
      : s_(s), runs_(runs_of(s.shape())), reach_(reach_of(s.shape(), s.at("weight"))), x_(s["x"]) {
    if (s.dim() != s.shape()["x"].dims[1].name) runs_ = {};
  }

  bool any() const { return runs_.rows > 0; }
  std::array<AttrValue, 2> attrs() const {
    return {AttrValue{"rows", of(runs_.rows)}, {"chunks", of(runs_.chunks)}};
  }
  Id with_ahead() const {
    const auto [tails] = s_.create<1>("halo_tails", {x_}, {rows(), reach()});
    return s_.create<1>("join_halo", {x_, shifted(tails, 1)},
                        {rows(), reach(), next(), parts(), chunks()})[0];
  }
  // Writes `to`.
  void give_back(Id with_ahead, Id to) const {
    const auto [own, halo] = s_.create<2>("part_halo", {with_ahead}, {rows(), reach()});
    s_.emit("add_tails", {own, shifted(halo, -1), halo, to}, {rows(), reach(), next(), parts(), chunks()});
  }

 private:
  static double of(std::int64_t number) { return static_cast<double>(number); }
  AttrValue rows() const { return {"rows", of(runs_.rows)}; }
  AttrValue reach() const { return {"reach", of(reach_)}; }
  AttrValue parts() const { return {"parts", of(runs_.count)}; }
  AttrValue chunks() const { return {"chunks", of(runs_.chunks)}; }
  static AttrValue next() { return {"distance", 1}; }
  Id shifted(Id tails, double distance) const {
    return s_.create<1>("shift", {tails},
                        {{"axis", of(runs_.axis)}, {"dim", 1}, {"distance", distance}, chunks()})[0];
  }

  const OpSplit& s_;
  Runs runs_;
  std::int64_t reach_;
  Id x_;
};

void set_tail(OpShape& s, int x, int weight, int tail) {
  const OperandShape& w = s.operand[weight];
  s.like(tail, x);
  s.operand[tail].dims[1] = {"recent", w.dims[w.rank - 1].extent - 1 + recent_positions};
  s.whole(tail, 1, 2);
}

double conv_flops(const OpShape& s, int x, int weight) {
  const OperandShape& w = s.operand[weight];
  return 2.0 * static_cast<double>(s.operand[x].elements()) * static_cast<double>(w.dims[w.rank - 1].extent);
}

}  // namespace

void ShortConv::rule(RuleOf<ShortConv> s) {
  check_conv(s);
  s.like("y", "x");
  set_tail(s, s.at("x"), s.at("weight"), s.at("tail"));
}

// The tail is for where text is made, one position after the other, and is not written.
void ShortConv::split(SplitOf<ShortConv> s) {
  const ConvInRuns runs(s);
  if (!runs.any()) return;
  const auto [rows, chunks] = runs.attrs();
  s.emit("short_conv_runs", {runs.with_ahead(), s["weight"], s["y"], s["documents"]}, {rows, chunks});
}

void ShortConv::gradient(GradientOf<ShortConv> g) {
  input_gradient<ShortConvInputGrad>(g, {"x"}, {{"dy", g.arrived("y")}});
  weight_gradient<ShortConvWeightGrad>(g, {"weight"}, {{"dy", g.arrived("y")}});
}

void ShortConv::cost(ShapeOf<ShortConv> s, OpCost& c) { c.flops = conv_flops(s, s.at("x"), s.at("weight")); }

void ShortConvAt::rule(RuleOf<ShortConvAt> s) {
  check_channels(s, s.at("x"), s.at("weight"), kind);
  s.whole("x", 1, 2);
  require_position(s["x"], s["position"], kind);
  s.like("y", "x");
  set_tail(s, s.at("x"), s.at("weight"), s.at("tail"));
  const OperandShape &kept = s["kept_tail"], &tail = s["tail"];
  bool alike = kept.rank == tail.rank && kept.dtype == tail.dtype;
  for (int d = 0; alike && d < tail.rank; ++d) alike = kept.dims[d] == tail.dims[d];
  require(alike && s["x"].dims[1].extent <= recent_positions, kind,
          " keeps a tail as short_conv gives it, and takes ", recent_positions, " positions at most");
}

void ShortConvAt::cost(ShapeOf<ShortConvAt> s, OpCost& c) {
  c.flops = conv_flops(s, s.at("x"), s.at("weight"));
}

void ShortConvInputGrad::rule(RuleOf<ShortConvInputGrad> s) {
  check_conv(s);
  s.like("dx", "x");
}

void ShortConvInputGrad::split(SplitOf<ShortConvInputGrad> s) {
  const ConvInRuns runs(s);
  if (!runs.any()) return;
  const auto [rows, chunks] = runs.attrs();
  const auto [dx] = s.create<1>("short_conv_runs_input_grad",
                                {s["dy"], runs.with_ahead(), s["weight"], s["documents"]}, {rows, chunks});
  runs.give_back(dx, s["dx"]);
}

void ShortConvInputGrad::cost(ShapeOf<ShortConvInputGrad> s, OpCost& c) {
  c.flops = 2 * conv_flops(s, s.at("x"), s.at("weight"));
  c.repeated = conv_flops(s, s.at("x"), s.at("weight"));
}

void ShortConvWeightGrad::rule(RuleOf<ShortConvWeightGrad> s) {
  check_conv(s);
  sum_all_but_channels(s, s.at("x"), s.at("weight"));
}

void ShortConvWeightGrad::split(SplitOf<ShortConvWeightGrad> s) {
  const ConvInRuns runs(s);
  if (!runs.any()) return;
  const auto [rows, chunks] = runs.attrs();
  s.emit("short_conv_runs_weight_grad",
         {s["dy"], runs.with_ahead(), s["weight"], s["documents"], s["dweight"]}, {rows, chunks});
}

void ShortConvWeightGrad::cost(ShapeOf<ShortConvWeightGrad> s, OpCost& c) {
  c.flops = 2 * conv_flops(s, s.at("x"), s.at("weight"));
  c.repeated = conv_flops(s, s.at("x"), s.at("weight"));
}

void ShortConvRuns::rule(RuleOf<ShortConvRuns> s) {
  const std::int64_t rows = s.integer("rows"), with_ahead = rows + reach_of(s, s.at("weight"));
  require(rows >= 1 && s["x"].rank >= 3 && s["x"].dims[1].extent % with_ahead == 0, kind,
          " takes whole runs, of `rows` positions each");
  s.like("y", "x");
  s["y"].dims[1].extent = s["x"].dims[1].extent / with_ahead * rows;
  check_runs(s, s.at("x"), s.at("weight"), s.at("y"), s.at("documents"), s.integer("rows"), kind);
}

void ShortConvRuns::cost(ShapeOf<ShortConvRuns> s, OpCost& c) {
  c.flops = conv_flops(s, s.at("y"), s.at("weight"));
}

void ShortConvRunsInputGrad::rule(RuleOf<ShortConvRunsInputGrad> s) {
  check_runs(s, s.at("x"), s.at("weight"), s.at("dy"), s.at("documents"), s.integer("rows"), kind);
  s.like("dx", "x");
}

void ShortConvRunsInputGrad::cost(ShapeOf<ShortConvRunsInputGrad> s, OpCost& c) {
  c.flops = 2 * conv_flops(s, s.at("dy"), s.at("weight"));
  c.repeated = conv_flops(s, s.at("dy"), s.at("weight"));
}

void ShortConvRunsWeightGrad::rule(RuleOf<ShortConvRunsWeightGrad> s) {
  check_runs(s, s.at("x"), s.at("weight"), s.at("dy"), s.at("documents"), s.integer("rows"), kind);
  sum_all_but_channels(s, s.at("dy"), s.at("weight"));
  s.sum("dy", 1, 2);
}

void ShortConvRunsWeightGrad::cost(ShapeOf<ShortConvRunsWeightGrad> s, OpCost& c) {
  c.flops = 2 * conv_flops(s, s.at("dy"), s.at("weight"));
  c.repeated = conv_flops(s, s.at("dy"), s.at("weight"));
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> short_conv_ops() {
  using namespace ops;
  return {op_def<ShortConv>(),
          op_def<ShortConvAt>(),
          op_def<ShortConvInputGrad>(),
          op_def<ShortConvWeightGrad>(),
          op_def<ShortConvRuns>(),
          op_def<ShortConvRunsInputGrad>(),
          op_def<ShortConvRunsWeightGrad>()};
}

}  // namespace prun
