#include <vector>

#include "base/require.hpp"
#include "prun/ops/documents.hpp"
#include "rules/positions.hpp"

namespace prun::ops {

void DocumentStarts::rule(RuleOf<DocumentStarts> s) {
  require(s["tokens"].rank == 2 && s["tokens"].dtype == DType::i32,
          "document_starts takes i32 tokens [batch, seq]");
  check_positions(s, s.at("tokens"), s.at("positions"), kind);
  s.like("starts", "tokens");
  s.whole("tokens", 1, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> documents_ops() {
  using namespace ops;
  return {op_def<DocumentStarts>()};
}

}  // namespace prun
