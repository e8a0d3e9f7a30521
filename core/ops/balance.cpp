// The op balance keeps experts evenly loaded. It computes over whole sequences and sums, so that the result
// is the same however a step is cut into microbatches and sharded over ranks. A sequence without a target
// that counts is padding and does not count.
//   counts[layer, e] += choices of expert e
//   losses[layer, 0] += scale * coefficient * routes * sum over e of f(e) * P(e)    by sequence, where f is
//   the
//                       share of its choices that e has and P the mean of its scores, which come to 1 a
//                       position
//   losses[layer, 1] += scale * z * mean over its positions of logsumexp(logits)^2
// Both are part of what is trained: scale is 1 / sequences of the whole step.
// steer: where keep is not 0, a bias of route goes up by `rate` where an expert has less than the mean of the
// whole step's choices, and down where it has more.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef losses_attrs[] = {int_attr("sigmoid", 0), real_attr("coefficient", 0.0),
                                    real_attr("z", 0.0)};

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

void want_whole_sequences(OpShape& s) {
  s.whole(1, 1, 3);
  if (s.operand[0].present) s.whole(0, 2, 3);
}

struct Balance {
  static constexpr const char* kind = "balance";
  static constexpr const char* at_position = kind;  // in text that is generated nothing is counted
  static constexpr bool any_order = true;
  static constexpr const char* help = "counts choices by expert, and what unevenness costs";
  static constexpr OperandDef operands[] = {
      {"logits", Access::read, true},  {"index"}, {"targets"}, {"scale"}, {"counts", Access::update},
      {"losses", Access::update, true}};
  static constexpr const AttrDef (&attrs)[3] = losses_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_sequences(s.operand[0], s.operand[1], s.operand[2], kind);
    const OperandShape &counts = s.operand[4], &losses = s.operand[5];
    require(counts.rank == 2 && counts.dtype == DType::f64, "balance takes fp64 counts [layer, routes]");
    require(!losses.present || (losses.rank == 2 && counts.dims[0] == losses.dims[0] &&
                                losses.dims[1].extent == 2 && losses.dtype == DType::f64),
            "balance takes fp64 losses [layer, 2]");
    require(losses.present == s.operand[0].present, "balance takes logits and losses together");
    require(!s.operand[0].present || s.operand[0].dims[2].extent == counts.dims[1].extent,
            "balance: logits and counts are of other numbers of experts");
    require(s.operand[0].present || (s.attrs[1].f == 0 && s.attrs[2].f == 0),
            "balance: losses follow from logits, which are left out");
    s.sum(1, 0, 1);
    want_whole_sequences(s);
    s.whole(4, 0, 2);
    if (losses.present) s.whole(5, 0, 2);
  }
  static void gradient(const Gradient& g) {
    if (g.attr("coefficient") == 0 && g.attr("z") == 0) return;
    g.input(0, "balance_grad", {g.operand(0), g.operand(1), g.operand(2), g.operand(3)},
            {{"sigmoid", g.attr("sigmoid")}, {"coefficient", g.attr("coefficient")}, {"z", g.attr("z")}});
  }
};

struct BalanceGrad {
  static constexpr const char* kind = "balance_grad";
  static constexpr const char* help = "dlogits of the losses of balance";
  static constexpr bool any_order = true;
  static constexpr OperandDef operands[] = {
      {"logits"}, {"index"}, {"targets"}, {"scale"}, {"dlogits", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = losses_attrs;
  static void rule(OpShape& s) {
    check_sequences(s.operand[0], s.operand[1], s.operand[2], kind);
    s.like(4, 0);
    want_whole_sequences(s);
  }
};

struct Steer {
  static constexpr const char* kind = "steer";
  static constexpr const char* help =
      "where keep is not 0: bias += rate * sign(mean of counts[layer] - counts[layer])";
  static constexpr OperandDef operands[] = {{"counts"}, {"keep"}, {"bias", Access::update}};
  static constexpr AttrDef attrs[] = {real_attr("rate", 0.001)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const OperandShape &counts = s.operand[0], &bias = s.operand[2];
    require(
        counts.rank == 2 && counts.dtype == DType::f64 && bias.rank == 1 && bias.dims[0] == counts.dims[1],
        "steer takes fp64 counts [layer, routes] and a bias [routes]");
    s.whole(0, 0, 2);
  }
};

}  // namespace

std::vector<OpDef> balance_ops() { return {op_def<Balance>(), op_def<BalanceGrad>(), op_def<Steer>()}; }

}  // namespace prun
