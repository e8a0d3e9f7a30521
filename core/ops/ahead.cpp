// The op ahead gives every position the number that lies `by` positions ahead of it in its sequence, such as
// a token or a target: for modules that predict further tokens. Where there is none, in the sequence or in
// the position's document, it gives `otherwise`.
#include <vector>

#include "base/require.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct Ahead {
  static constexpr const char* kind = "ahead";
  static constexpr const char* at_position = kind;  // in text that is generated nothing further is predicted
  static constexpr const char* help =
      "the number `by` positions ahead in the same sequence and document, else `otherwise`";
  static constexpr OperandDef operands[] = {
      {"x"}, {"y", Access::write}, positions_operand, {"documents", Access::read, true}};
  static constexpr AttrDef attrs[] = {int_attr("by", 1), int_attr("otherwise", 0)};
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &documents = s.operand[3];
    require(x.rank == 2 && x.dtype == DType::i32, "ahead takes i32 numbers [batch, seq]");
    require(!documents.present || (documents.rank == 2 && documents.dtype == DType::i32 &&
                                   documents.dims[0] == x.dims[0] && documents.dims[1] == x.dims[1]),
            "ahead takes i32 documents [batch, seq]");
    require(s.attrs[0].i >= 1, "ahead: `by` is at least 1");
    check_positions(s, 0, 2, kind);
    s.like(1, 0);
    s.whole(0, 1, 2);
  }
};

}  // namespace

std::vector<OpDef> ahead_ops() { return {op_def<Ahead>()}; }

}  // namespace prun
