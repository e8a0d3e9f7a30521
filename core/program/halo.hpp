// Has an op that reads only so many positions back get these in front of each chunk of a rank's part of the
// sequence, its halo, instead of all positions: a rank gets the last positions of the chunks before its own
// from those that have them, and no others.
#pragma once

#include "program/step_program.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

class Halo {
 public:
  // Ranks of the axis share out sequences of so many positions in chunks, two each if these lie in an order
  // of their own.
  Halo(Program& program, AxisId axis, SequenceOrder order, std::int64_t positions);

  // Returns how many positions ahead of a chunk `across` takes in the op's place, or 0 if it takes all. It
  // does with an attribute `ahead`, if the op's attribute `window`, which counts the position itself, says
  // that a rank needs fewer of them than of all.
  std::int64_t reach(Id op, const OpDef& across) const;
  // Returns a value with `reach` positions ahead of each chunk, put together before `before`, an op.
  Id joined(Id value, std::int64_t reach, Id before);
  // Returns what has a result with `reach` positions ahead of each chunk; ops before `next` make `value` of
  // it. They belong to the function of `op`.
  Id given_back(Id value, std::int64_t reach, const Op& op, Id next);
  // Says what the op in an op's place is told of its keys.
  std::vector<AttrValue> attrs_across(std::int64_t reach) const;

 private:
  // Is what a halo has of the chunk `distance` before it, in front of which come so many rows.
  struct Piece {
    std::int64_t distance, reach, rows;
  };
  std::vector<Piece> pieces_of(std::int64_t reach) const;
  std::vector<AttrValue> attrs(const Piece& piece, std::int64_t rows) const;
  Id shifted(Id value, std::int64_t distance, const Op& like, Id before);
  Id create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
            std::span<const AttrValue> attrs, Id before);

  Program& program_;
  const AxisId axis_;
  const SequenceOrder order_;
  const std::int64_t parts_, rows_;  // 0 rows: chunks are not equal, which is refused elsewhere
};

}  // namespace prun
