#include <vector>

#include "base/require.hpp"
#include "prun/ops/token_types.hpp"
#include "rules/positions.hpp"

namespace prun::ops {

void TokenTypes::rule(RuleOf<TokenTypes> s) {
  require(s["tokens"].rank == 2 && s["tokens"].dtype == DType::i32,
          "token_types takes i32 tokens [batch, seq]");
  require(s.integer("types") >= 1, "token_types: there is at least one type");
  check_positions(s, s.at("tokens"), s.at("positions"), kind);
  s.like("kinds", "tokens");
  s.whole("tokens", 1, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> token_types_ops() {
  using namespace ops;
  return {op_def<TokenTypes>()};
}

}  // namespace prun
