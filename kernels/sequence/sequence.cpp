#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/sequence.hpp"

namespace prun::ops {
namespace {

// Sets y to x with another name for its sequence, which both have whole.
template <class Op>
void rename_sequence(RuleOf<Op> s, const char* to) {
  require(s["x"].rank >= 2 && s["x"].dims[1].name != Name(to), Op::kind, " takes [batch, sequence, ...]");
  s.like("y", "x");
  s["y"].dims[1].name = to;
  s.whole("x", 1, 2);
  s.whole("y", 1, 2);
  s.pass_partial({"x"});
}

}  // namespace

void AsContext::rule(RuleOf<AsContext> s) { rename_sequence(s, "context"); }

void AsContext::gradient(GradientOf<AsContext> g) {
  input_gradient<AsSeq>(g, {"x"}, {{"x", g.arrived("y")}},
                        {{"chunk", g.attr("chunk")}, {"chunks", g.attr("chunks")}});
}

void AsSeq::rule(RuleOf<AsSeq> s) { rename_sequence(s, "seq"); }

void AsSeq::gradient(GradientOf<AsSeq> g) {
  input_gradient<AsContext>(g, {"x"}, {{"x", g.arrived("y")}},
                            {{"chunk", g.attr("chunk")}, {"chunks", g.attr("chunks")}});
}

void Positions::rule(RuleOf<Positions> s) {
  require(s["tokens"].rank == 2, "positions takes tokens [batch, seq]");
  s.output("positions", DType::i32, s["tokens"].dims + 1, 1);
}

void TakePiece::rule(RuleOf<TakePiece> s) {
  const std::int64_t dim = s.integer("dim"), piece = s.integer("piece"), pieces = s.integer("pieces");
  require(
      dim >= 0 && dim < s["x"].rank && piece >= 0 && piece < pieces && s["x"].dims[dim].extent % pieces == 0,
      "take_piece: piece ", piece, " of ", pieces, " along dimension ", dim);
  s.like("y", "x");
  s["y"].dims[dim].extent /= pieces;
  s.pass_partial({"x"});
}

void JoinPieces::rule(RuleOf<JoinPieces> s) {
  const std::int64_t dim = s.integer("dim");
  const bool there[] = {s.has("x0"), s.has("x1"), s.has("x2"), s.has("x3"),
                        s.has("x4"), s.has("x5"), s.has("x6"), s.has("x7")};
  int pieces = 0;
  while (pieces < 8 && there[pieces]) ++pieces;
  require(dim >= 0 && dim < s["x0"].rank, "join_pieces: dimension ", dim);
  s.like("y", "x0");
  s["y"].dims[dim].extent *= pieces;
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> sequence_ops() {
  using namespace ops;
  return {op_def<AsContext>(), op_def<AsSeq>(), op_def<Positions>(), op_def<TakePiece>(),
          op_def<JoinPieces>()};
}

}  // namespace prun
