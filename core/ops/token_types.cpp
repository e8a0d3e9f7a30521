// The op token_types says which part of its sample a position is in, where a token separates the parts: the
// number of separators before it, at most types - 1. The separator itself belongs to the part that it ends.
#include <vector>

#include "base/require.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct TokenTypes {
  static constexpr const char* kind = "token_types";
  static constexpr const char* help =
      "how many tokens `separator` lie in front of each position, at most types - 1";
  static constexpr OperandDef operands[] = {{"tokens"}, {"kinds", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("separator", -1), int_attr("types", 2)};
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2 && s.operand[0].dtype == DType::i32,
            "token_types takes i32 tokens [batch, seq]");
    require(s.attrs[1].i >= 1, "token_types: there is at least one type");
    check_positions(s, 0, 2, kind);
    s.like(1, 0);
    s.whole(0, 1, 2);
  }
};

}  // namespace

std::vector<OpDef> token_types_ops() { return {op_def<TokenTypes>()}; }

}  // namespace prun
