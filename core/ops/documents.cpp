// Defines document_starts, which gives for each position the first one of its document, within the sample: if
// documents are kept apart, an op that lets positions see each other takes it as its operand `documents`.
#include <vector>

#include "base/require.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct DocumentStarts {
  static constexpr const char* kind = "document_starts";
  static constexpr const char* help =
      "the first position of each position's document, which the token `end` ends";
  static constexpr OperandDef operands[] = {{"tokens"}, {"starts", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("end", -1)};
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2 && s.operand[0].dtype == DType::i32,
            "document_starts takes i32 tokens [batch, seq]");
    check_positions(s, 0, 2, kind);
    s.like(1, 0);
    s.whole(0, 1, 2);
  }
};

}  // namespace

std::vector<OpDef> documents_ops() { return {op_def<DocumentStarts>()}; }

}  // namespace prun
