// lm_head: logits, softmax cross-entropy and their gradients in one op, in chunks of rows, so that the logits
// never exist whole. There may be a bias for each word. It computes its gradients in forward: dx leaves it as
// a result, and the weight's gradient is added to its accumulator right there.
//   loss += sum over targets that count of -log softmax(x w^T + bias)[target]
//   dx, dweight, dbias: gradients of loss * scale, where scale = 1 / number of targets of the whole step
#include <vector>

#include "ops/head_shapes.hpp"

namespace prun {
namespace {

struct LmHead {
  static constexpr const char* kind = "lm_head";
  static constexpr const char* help = "language-model head with fused, chunked cross-entropy";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"scale"},
                                            {"loss", Access::update},
                                            {"dweight", Access::update, true},
                                            {"dx", Access::write},
                                            head_bias,
                                            head_dbias};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static constexpr const char* logits = "lm_head_logits";
  static void rule(OpShape& s) {
    check_head(s, 7, kind);
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.whole(1, 0, 1);
    keep_widths_whole(s);
  }
  static void gradient(const Gradient& g) {
    g.bind(5, g.accumulator(1));
    g.bind(8, g.accumulator(7));
    g.pass(0, g.operand(6));
  }
  // Splits the head if the vocabulary is split: into the ops of lm_head_split, which say what ranks must know
  // of each other's logits. Sums over the axes (of scaled, hit and dx) are not written: they follow from
  // where it lies.
  static void split(const OpSplit& s) {
    const Dim& vocab = s.shape().operand[1].dims[0];
    if (s.dim() != vocab.name) return;
    const Id x = s.operand(0), weight = s.operand(1), targets = s.operand(2), scale = s.operand(3),
             loss = s.operand(4), dweight = s.operand(5), dx = s.operand(6), bias = s.operand(7);
    const auto [max, sum, hit] = s.create<3>("lm_head_scan", {x, weight, targets, bias},
                                             {{"vocab", static_cast<double>(vocab.extent)}});
    Id gmax = max;
    for (std::int32_t axis : s.axes())
      gmax = s.create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
    const auto [scaled] = s.create<1>("lm_head_rescale", {max, gmax, sum});
    const auto [lse] = s.create<1>("lm_head_loss", {gmax, scaled, hit, targets, loss});
    s.emit("lm_head_grad", {x, weight, targets, lse, scale, dweight, dx, bias, s.operand(8)});
  }
  // Counts three products: logits, dx and dweight.
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

}  // namespace

std::vector<OpDef> lm_head_ops() { return {op_def<LmHead>()}; }

}  // namespace prun
