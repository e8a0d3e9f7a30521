// Defines the LM head where nothing is trained and no loss is needed: the logits themselves.
//   lm_head_logits   of the one position of each row whose target counts, in the type of statistics
//   whole_logits     the same where the host finds them: no rank has a part of the vocabulary alone
#include <vector>

#include "ops/head_shapes.hpp"

namespace prun {
namespace {

struct LmHeadLogits {
  static constexpr const char* kind = "lm_head_logits";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "by row, the logits of the last position whose target is not negative; zeros, or the bias, "
      "where there is none";
  static constexpr OperandDef operands[] = {
      {"x"}, {.name = "weight", .rows_by = 2}, {"targets"}, {"logits", Access::write}, head_bias};
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    check_head(s, 4, kind);
    const Dim dims[] = {x.dims[0], w.dims[0]};
    s.output(3, OpShape::statistics(x.dtype), dims, 2);
    s.sum(0, 1, 2);
    if (x.dims[2] == w.dims[1] && !s.operand[4].present)
      s.sum(0, 2, 3);
    else
      keep_widths_whole(s);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops =
        2.0 * static_cast<double>(s.operand[0].dims[0].extent) * static_cast<double>(s.operand[1].elements());
  }
};

struct WholeLogits {
  static constexpr const char* kind = "whole_logits";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x, of the whole vocabulary";
  static constexpr bool copies = true;
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2, "whole_logits takes x [batch, vocab]");
    s.like(1, 0);
    s.operand[1].dims[1].name = "logits";  // a name that no axis is requested to split
    s.whole(0, 1, 2);
  }
};

}  // namespace

std::vector<OpDef> lm_head_logits_ops() { return {op_def<LmHeadLogits>(), op_def<WholeLogits>()}; }

}  // namespace prun
