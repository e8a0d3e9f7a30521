// The LM head for a weight whose vocabulary is split: lm_head in four ops, so that ranks can exchange the
// little that each must know of the others' logits. In between stand, over the axis that splits the
// vocabulary:
//   lm_head_scan      max, sum and hit of this part   -> gmax: all_reduce_max of max
//   lm_head_rescale   sum, as if gmax were the max    -> all_reduce of scaled, and of hit
//   lm_head_loss      lse = log of the sum of all exponentials; the loss
//   lm_head_grad      dweight and dbias of this part; dx -> all_reduce of dx
// The logits exist in chunks of rows, twice: scan and grad compute them each.
#include <vector>

#include "ops/head_shapes.hpp"

namespace prun {
namespace {

struct LmHeadScan {
  static constexpr const char* kind = "lm_head_scan";
  static constexpr const char* help =
      "by row, over one part of the vocabulary: the largest logit, the sum of exp(logit - largest), and the "
      "target's logit (0 where another part has it)";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"max", Access::write},
                                            {"sum", Access::write},
                                            {"hit", Access::write},
                                            head_bias};
  // The vocabulary of all parts: a target beyond it makes its hit NaN.
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0)};
  static void rule(OpShape& s) {
    check_head(s, 6, kind);
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    require(s.attrs[0].i == w.dims[0].extent, "lm_head_scan: `vocab` is ", s.attrs[0].i,
            ", but the whole weight has ", w.dims[0].extent, " rows");
    for (int i : {3, 4, 5}) s.output(i, OpShape::statistics(x.dtype), x.dims, 2);
    s.sum(1, 0, 1);
    keep_widths_whole(s);
  }
  // lm_head_grad needs the logits again, and counts them.
  static void cost(const OpShape& s, OpCost& c) { c.flops = c.repeated = product_flops(s); }
};

struct LmHeadRescale {
  static constexpr const char* kind = "lm_head_rescale";
  static constexpr const char* help = "scaled = sum * exp(max - gmax)";
  static constexpr OperandDef operands[] = {{"max"}, {"gmax"}, {"sum"}, {"scaled", Access::write}};
  static void rule(OpShape& s) {
    s.like(3, 2);
    s.pass_partial({0, 2});
  }
};

struct LmHeadLoss {
  static constexpr const char* kind = "lm_head_loss";
  static constexpr const char* help = "lse = gmax + log(scaled); loss += lse - hit where the target counts";
  static constexpr OperandDef operands[] = {
      {"gmax"}, {"scaled"}, {"hit"}, {"targets"}, {"loss", Access::update}, {"lse", Access::write}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2, "lm_head_loss takes gmax, scaled and hit [batch, seq]");
    require(s.operand[3].dtype == DType::i32, "lm_head_loss takes i32 targets [batch, seq]");
    s.like(5, 0);
    s.sum(0, 0, 2);
  }
};

struct LmHeadGrad {
  static constexpr const char* kind = "lm_head_grad";
  static constexpr const char* help =
      "gradients of the loss over one part of the vocabulary: dweight, dbias, and this part's contribution "
      "to dx";
  static constexpr OperandDef operands[] = {
      {"x"},     {.name = "weight", .rows_by = 2},  {"targets"},           {"lse"},
      {"scale"}, {"dweight", Access::update, true}, {"dx", Access::write}, head_bias,
      head_dbias};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(OpShape& s) {
    check_head(s, 7, kind);
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.sum(1, 0, 1);
    keep_widths_whole(s);
  }
  // Counts three products, as in lm_head: logits, dx and dweight.
  static void cost(const OpShape& s, OpCost& c) { c.flops = 3 * product_flops(s); }
};

}  // namespace

std::vector<OpDef> lm_head_split_ops() {
  return {op_def<LmHeadScan>(), op_def<LmHeadRescale>(), op_def<LmHeadLoss>(), op_def<LmHeadGrad>()};
}

}  // namespace prun
