// Defines ops between a sequence that ranks share out and ops that read all of it (program/sequence.cpp):
// as_context gives what such an op reads of all positions a dimension of its own, as_seq takes it back, and
// positions says which one lies at each place where sequences lie in another order (prun/sequence_order.hpp).
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef order_attrs[] = {int_attr("chunk", 0), int_attr("chunks", 0)};

// Sets y to x with another name for its sequence, which both have whole.
void rename_sequence(OpShape& s, const char* op, const char* to) {
  require(s.operand[0].rank >= 2 && s.operand[0].dims[1].name != Name(to), op,
          " takes [batch, sequence, ...]");
  s.like(1, 0);
  s.operand[1].dims[1].name = to;
  s.whole(0, 1, 2);
  s.whole(1, 1, 2);
  s.pass_partial({0});
}

struct AsContext {
  static constexpr const char* kind = "as_context";
  static constexpr const char* help = "all positions of a sequence in their order, as what others look at";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(OpShape& s) { rename_sequence(s, kind, "context"); }
  static void gradient(const Gradient& g) {
    g.input(0, "as_seq", {g.arrived(1)}, {{"chunk", g.attr("chunk")}, {"chunks", g.attr("chunks")}});
  }
};

struct AsSeq {
  static constexpr const char* kind = "as_seq";
  static constexpr const char* help = "what as_context made, as it lay: its gradient's way back";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(OpShape& s) { rename_sequence(s, kind, "seq"); }
  static void gradient(const Gradient& g) {
    g.input(0, "as_context", {g.arrived(1)}, {{"chunk", g.attr("chunk")}, {"chunks", g.attr("chunks")}});
  }
};

struct Positions {
  static constexpr const char* kind = "positions";
  static constexpr const char* help = "the position that lies at each place of the sequences";
  static constexpr OperandDef operands[] = {{"tokens"}, {"positions", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(OpShape& s) {
    require(s.operand[0].rank == 2, "positions takes tokens [batch, seq]");
    s.output(1, DType::i32, s.operand[0].dims + 1, 1);
  }
};

// Takes every `pieces`th index along dimension `dim`, from `piece` on: so a part of each rank's, however it
// is split.
struct TakePiece {
  static constexpr const char* kind = "take_piece";
  static constexpr const char* help = "every so-many-th index along a dimension";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0), int_attr("piece", 0), int_attr("pieces", 1)};
  static void rule(OpShape& s) {
    const std::int64_t dim = s.attrs[0].i, piece = s.attrs[1].i, pieces = s.attrs[2].i;
    require(dim >= 0 && dim < s.operand[0].rank && piece >= 0 && piece < pieces &&
                s.operand[0].dims[dim].extent % pieces == 0,
            "take_piece: piece ", piece, " of ", pieces, " along dimension ", dim);
    s.like(1, 0);
    s.operand[1].dims[dim].extent /= pieces;
    s.pass_partial({0});
  }
};

struct JoinPieces {
  static constexpr const char* kind = "join_pieces";
  static constexpr const char* help = "what take_piece took apart, together";
  static constexpr OperandDef operands[] = {{"x0"},
                                            {"x1"},
                                            {"x2", Access::read, true},
                                            {"x3", Access::read, true},
                                            {"x4", Access::read, true},
                                            {"x5", Access::read, true},
                                            {"x6", Access::read, true},
                                            {"x7", Access::read, true},
                                            {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0)};
  static void rule(OpShape& s) {
    const std::int64_t dim = s.attrs[0].i;
    int pieces = 0;
    while (pieces < 8 && s.operand[pieces].present) ++pieces;
    require(dim >= 0 && dim < s.operand[0].rank, "join_pieces: dimension ", dim);
    s.like(8, 0);
    s.operand[8].dims[dim].extent *= pieces;
  }
};

}  // namespace

std::vector<OpDef> sequence_ops() {
  return {op_def<AsContext>(), op_def<AsSeq>(), op_def<Positions>(), op_def<TakePiece>(),
          op_def<JoinPieces>()};
}

}  // namespace prun
