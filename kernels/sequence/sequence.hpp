// SPDX-License-Identifier: Apache-2.0
// Defines ops between a sequence that ranks share out and ops that read all of it (program/sequence.cpp):
// as_context gives what such an op reads of all positions a dimension of its own, as_seq takes it back, and
// positions says which one lies at each place where sequences lie in another order (prun/sequence_order.hpp).
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef order_attrs[] = {int_attr("chunk", 0), int_attr("chunks", 0)};

struct AsContext {
  static constexpr const char* kind = "as_context";
  static constexpr const char* help = "all positions of a sequence in their order, as what others look at";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(RuleOf<AsContext> s);
  static void gradient(GradientOf<AsContext> g);
};

struct AsSeq {
  static constexpr const char* kind = "as_seq";
  static constexpr const char* help = "what as_context made, as it lay: its gradient's way back";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(RuleOf<AsSeq> s);
  static void gradient(GradientOf<AsSeq> g);
};

struct Positions {
  static constexpr const char* kind = "positions";
  static constexpr const char* help = "the position that lies at each place of the sequences";
  static constexpr OperandDef operands[] = {{"tokens"}, {"positions", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = order_attrs;
  static void rule(RuleOf<Positions> s);
};

// Takes every `pieces`th index along dimension `dim`, from `piece` on: so a part of each rank's, however it
// is split.
struct TakePiece {
  static constexpr const char* kind = "take_piece";
  static constexpr const char* help = "every so-many-th index along a dimension";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0), int_attr("piece", 0), int_attr("pieces", 1)};
  static void rule(RuleOf<TakePiece> s);
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
  static void rule(RuleOf<JoinPieces> s);
};

}  // namespace prun::ops
