// SPDX-License-Identifier: Apache-2.0
// Shows the author of a device's lower() which ops read what, so that several ops can become one.
//
//   for (const Segment& segment : program.segments()) {
//     const Uses uses(segment);
//     ... an op whose result `uses.readers(result)` has a single reader: program.replace_op(reader, "fused",
//     {...}), program.erase(op)
//   }
#pragma once

#include <map>
#include <set>
#include <vector>

#include "prun/program.hpp"

namespace prun {

// Shows who uses the values of a segment as it was when this object was made.
class Uses {
 public:
  explicit Uses(const Segment& segment) {
    const SegmentInfo info = segment.info();
    handed_on_ = {info.outgoing, info.incoming_gradient};
    for (const Id value : segment.values())
      if (segment.program().used_elsewhere(value)) handed_on_.insert(value);
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id op : segment.operations(static_cast<FunctionKind>(kind)))
        add(op, segment.program().op(op));
  }

  // Returns the ops that read or update a value of the segment, by function in the order of FunctionKind; an
  // op appears as often as it lists the value.
  const std::vector<Id>& readers(Id value) const {
    static const std::vector<Id> nobody;
    const auto found = readers_.find(value);
    return found == readers_.end() ? nobody : found->second;
  }
  // Says whether a segment before or after reads the value, or a function of another device uses it.
  bool handed_on(Id value) const { return value != none && handed_on_.count(value) != 0; }

 private:
  void add(Id id, const OpInfo& op) {
    for (std::uint64_t i = 0; i < op.operands.size; ++i)
      if (op.def->operands[i].access != Access::write) readers_[op.operands.data[i]].push_back(id);
  }

  std::map<Id, std::vector<Id>> readers_;
  std::set<Id> handed_on_;
};

}  // namespace prun
