// SPDX-License-Identifier: Apache-2.0
// Defines ops that bring chunks of a sequence the positions in front of them, their halo, where an op behind
// reads no further back (program/sequence.cpp). Sequences are cut into chunks, of which a rank has one or
// more. halo_tails takes the last `reach` positions of each chunk; shift brings each rank those of the chunks
// that come `distance` before its own, where another rank has them; join_halo puts them in front, and those
// that the rank has itself. A halo longer than a chunk is put together piece by piece, the nearest first.
// part_halo and add_tails are the gradients' way back.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef tail_attrs[] = {int_attr("rows", 1), int_attr("reach", 1)};

// A sequence has `parts` chunks. With `chunks`, as many, they lie in the order of prun/sequence_order.hpp.
// `distance` says how many chunks before it the one is whose positions come in front of a chunk, or go back.
inline constexpr AttrDef halo_attrs[] = {tail_attrs[0], tail_attrs[1], int_attr("distance", 1),
                                         int_attr("parts", 1), int_attr("chunks", 0)};

// Has parts of a dimension go to the ranks of those that come `distance` behind them; a part behind none is
// not written.
struct Shift {
  static constexpr const char* kind = "shift";
  static constexpr const char* help = "each part of a sequence in the place of the one so many behind it";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0), int_attr("dim", 1), int_attr("distance", 1),
                                      int_attr("chunks", 0)};
  static constexpr OpExchange exchange{CommKind::send};
  static void rule(RuleOf<Shift> s);
};

struct HaloTails {
  static constexpr const char* kind = "halo_tails";
  static constexpr const char* help = "the last positions of each chunk of a sequence";
  static constexpr OperandDef operands[] = {{"x"}, {"tails", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(RuleOf<HaloTails> s);
};

// `halo` has what other ranks have sent. Of a chunk that the rank has itself, x has the tail, and no halo is
// read.
struct JoinHalo {
  static constexpr const char* kind = "join_halo";
  static constexpr const char* help =
      "each chunk of a sequence behind the tail of one before it, or behind zeros";
  static constexpr OperandDef operands[] = {{"x"}, {"halo"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[5] = halo_attrs;
  static void rule(RuleOf<JoinHalo> s);
};

struct PartHalo {
  static constexpr const char* kind = "part_halo";
  static constexpr const char* help = "what join_halo has put together, apart: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"x", Access::write}, {"halo", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(RuleOf<PartHalo> s);
};

// `tails` are those that other ranks have sent back, and `own` those that this one has parted: of a chunk in
// front of one that it has itself.
struct AddTails {
  static constexpr const char* kind = "add_tails";
  static constexpr const char* help =
      "x with what was in front of another chunk added to the last positions of each";
  static constexpr OperandDef operands[] = {{"x"}, {"tails"}, {"own"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[5] = halo_attrs;
  static void rule(RuleOf<AddTails> s);
};

}  // namespace prun::ops
