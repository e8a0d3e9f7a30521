// Has an op that reads only so many positions back get these in front of each chunk of a rank's part of the
// sequence, its halo, instead of all positions: ranks exchange the last positions of their chunks alone.
#pragma once

#include "program/step_program.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

class Halo {
 public:
  // Ranks share out sequences of so many positions in `parts` chunks, which lie in that order.
  Halo(Program& program, SequenceOrder order, std::int64_t positions, std::int64_t parts);

  // Returns how many positions ahead of a chunk `across` takes in the op's place, or 0 if it takes all. It
  // does with an attribute `ahead`, if the op's attribute `window`, which counts the position itself, says
  // that these are fewer than a chunk's.
  std::int64_t reach(Id op, const OpDef& across) const;
  // Returns a value with `reach` positions ahead of each chunk, put together before `before`, an op.
  Id joined(Id value, std::int64_t reach, Id before);
  // Returns what has a result with `reach` positions ahead of each chunk; ops before `next` make `value` of
  // it. They belong to the function of `op`.
  Id given_back(Id value, std::int64_t reach, const Op& op, Id next);
  // Says what the op in an op's place is told of its keys.
  std::vector<AttrValue> attrs_across(std::int64_t reach) const;

 private:
  std::vector<AttrValue> attrs(std::int64_t reach) const;
  std::vector<AttrValue> order_of_tails(std::int64_t reach) const;
  Id create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
            std::span<const AttrValue> attrs, Id before);

  Program& program_;
  const SequenceOrder order_;
  const std::int64_t parts_, rows_;  // 0 rows: chunks are not equal, which is refused elsewhere
};

}  // namespace prun
