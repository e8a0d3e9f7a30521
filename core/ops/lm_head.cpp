// lm_head: logits, softmax cross-entropy and their gradients in one op, in chunks of rows, so that the logits
// never exist whole. It is the one op that computes a gradient in forward: dx leaves it as a result, and the
// weight's gradient is added to its accumulator right there.
//   loss += sum over targets that count of -log softmax(x w^T)[target]
//   dx, dweight: gradients of loss * scale, where scale = 1 / number of targets of the whole step
#include <vector>

#include "prun/op.hpp"

namespace prun {
namespace {

struct LmHead {
  static constexpr const char* kind = "lm_head";
  static constexpr const char* help = "language-model head with fused, chunked cross-entropy";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"weight"},
                                            {"targets"},
                                            {"scale"},
                                            {"loss", Access::update},
                                            {"dweight", Access::update, true},
                                            {"dx", Access::write}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    PRUN_CHECK(x.rank == 3 && w.rank == 2 && x.dims[2] == w.dims[1],
               "lm_head takes x [batch, seq, width] and a weight [vocab, width]");
    PRUN_CHECK(s.operand[2].dtype == DType::i32, "lm_head takes i32 targets [batch, seq]");
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.whole(1, 0, 2);
  }
  static void gradient(const Gradient& g) {
    g.bind(5, g.accumulator(1));
    g.pass(0, g.operand(6));
  }
  // Three products: logits, dx and dweight; only the first belongs to forward's model FLOPs.
  static void cost(const OpShape& s, OpCost& c) {
    const OperandShape& x = s.operand[0];
    c.flops = 6.0 * static_cast<double>(x.dims[0].extent * x.dims[1].extent) *
              static_cast<double>(s.operand[1].elements());
  }
};

}  // namespace

std::vector<OpDef> lm_head_ops() { return {op_def<LmHead>()}; }

}  // namespace prun
