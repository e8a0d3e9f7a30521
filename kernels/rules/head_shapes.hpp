// States what the ops of an LM head take, and what its products cost. They name operands alike: x, weight,
// targets and bias.
#pragma once

#include "base/require.hpp"
#include "prun/named_operands.hpp"

namespace prun {

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

}  // namespace prun
