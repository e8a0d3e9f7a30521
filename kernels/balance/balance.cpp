#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/balance.hpp"

namespace prun::ops {
namespace {

void check_sequences(const OperandShape& logits, const OperandShape& index, const OperandShape& targets,
                     const char* op) {
  require(index.rank == 3 && index.dtype == DType::i32 && targets.rank == 2 && targets.dtype == DType::i32 &&
              targets.dims[0] == index.dims[0] && targets.dims[1] == index.dims[1],
          op, " takes i32 choices [batch, seq, choice] and i32 targets [batch, seq]");
  if (!logits.present) return;
  require(logits.rank == 3 && (logits.dtype == DType::f32 || logits.dtype == DType::f64) &&
              logits.dims[0] == index.dims[0] && logits.dims[1] == index.dims[1],
          op, " takes logits [batch, seq, routes] in fp32 or fp64");
}

template <class Op>
void want_whole_sequences(RuleOf<Op> s) {
  s.whole("index", 1, 3);
  if (s.has("logits")) s.whole("logits", 2, 3);
}

}  // namespace

void Balance::rule(RuleOf<Balance> s) {
  check_sequences(s["logits"], s["index"], s["targets"], kind);
  const OperandShape &counts = s["counts"], &losses = s["losses"];
  require(counts.rank == 2 && counts.dtype == DType::f64, "balance takes fp64 counts [layer, routes]");
  require(!losses.present || (losses.rank == 2 && counts.dims[0] == losses.dims[0] &&
                              losses.dims[1].extent == 2 && losses.dtype == DType::f64),
          "balance takes fp64 losses [layer, 2]");
  require(losses.present == s["logits"].present, "balance takes logits and losses together");
  require(!s["logits"].present || s["logits"].dims[2].extent == counts.dims[1].extent,
          "balance: logits and counts are of other numbers of experts");
  require(s["logits"].present || (s.real("coefficient") == 0 && s.real("z") == 0),
          "balance: losses follow from logits, which are left out");
  s.sum("index", 0, 1);
  want_whole_sequences(s);
  s.whole("counts", 0, 2);
  if (losses.present) s.whole("losses", 0, 2);
}

void Balance::gradient(GradientOf<Balance> g) {
  if (g.attr("coefficient") == 0 && g.attr("z") == 0) return;
  input_gradient<BalanceGrad>(
      g, {"logits"}, {},
      {{"sigmoid", g.attr("sigmoid")}, {"coefficient", g.attr("coefficient")}, {"z", g.attr("z")}});
}

void BalanceGrad::rule(RuleOf<BalanceGrad> s) {
  check_sequences(s["logits"], s["index"], s["targets"], kind);
  s.like("dlogits", "logits");
  want_whole_sequences(s);
}

void Steer::rule(RuleOf<Steer> s) {
  const OperandShape &counts = s["counts"], &bias = s["bias"];
  require(counts.rank == 2 && counts.dtype == DType::f64 && bias.rank == 1 && bias.dims[0] == counts.dims[1],
          "steer takes fp64 counts [layer, routes] and a bias [routes]");
  s.whole("counts", 0, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> balance_ops() {
  using namespace ops;
  return {op_def<Balance>(), op_def<BalanceGrad>(), op_def<Steer>()};
}

}  // namespace prun
