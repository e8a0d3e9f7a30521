// Keeps sums and maxima over the ranks of an axis: what each op adds to, and when a complete value is summed.
//
// What every rank adds alike and what each adds of its own must not meet in one sum: the former goes to a
// twin, which is added when the sum is complete. An op that reads the sum reads both.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "placement/axis_state.hpp"

namespace prun {

class AxisSums {
 public:
  explicit AxisSums(AxisState& axis) : axis_(axis), program_(axis.program()) {}

  bool has_twin(Id id) const { return twins_.count(id) != 0; }
  // Notes an op that has been placed.
  void note_placed(Id op) { placed_.push_back(op); }
  // Notes that an exchange of the program sums the value: nothing may be added to one rank's copy alone.
  void note_summed(Id id) { summed_.insert(id); }
  // Notes that operand i is written or accumulated into, with that placement; `folds` says that the op takes
  // the larger of the old and the new value.
  void produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement, bool folds);
  // Makes a value whole before an op that reads it.
  void sum_in_place(Id id, const Op& op, Id before);
  // Sums the twin over another axis, if each of the two holds a summand of it.
  void sum_twin_alike(const Op& op, Id id);

 private:
  void accumulate(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement);
  bool reads_varying_tensors(const Op& op) const;
  void check_joins(const Op& op, std::size_t i, const AxisPlacement& placement) const;
  void fold(const Op& op, std::size_t i, const AxisPlacement& placement, bool folds);
  Id twin_of(Id id);
  void redirect(Id id, Id twin);

  AxisState& axis_;
  Program& program_;
  std::set<Id> cleared_;
  std::set<Id> summed_;     // values summed in place: nothing may be added to one rank's copy alone
  std::map<Id, Id> twins_;  // runtime sums: the part that is alike on every rank
  std::vector<Id> placed_;  // ops placed so far
};

}  // namespace prun
