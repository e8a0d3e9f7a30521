// Decides for sums and maxima over the ranks of an axis what each op adds to, and where the total is reduced.
//
// Replicated and partial contributions must not enter one sum, since the all-reduce would count the
// replicated one once per rank. The replicated ones go to a second accumulator, the twin, which is added
// after the all-reduce. Example: on axis `tp`, the squared norm of a gain is the same on every rank, that of
// a sharded weight differs. The first goes to `norm@tp`, the second to `norm`; `finish` all-reduces `norm`
// and adds `norm@tp`.
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
  // Call it for each op, once it is placed.
  void note_placed(Id op) { placed_.push_back(op); }
  // Marks a value that an existing collective sums in place: no rank may add to its copy afterwards.
  void note_summed(Id id) { summed_.insert(id); }
  // Records that op writes or accumulates operand i with that placement. `folds`: the op takes the maximum of
  // old and new value.
  void produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement, bool folds);
  // Reduces a value in place before op `before` reads it.
  void sum_in_place(Id id, const Op& op, Id before);
  // Sums the twin over another axis, if it is partial there like the value.
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
  std::set<Id> summed_;     // reduced in place: no rank may add to its copy
  std::map<Id, Id> twins_;  // accumulators of replicated contributions, by the partial sum
  std::vector<Id> placed_;  // in order
};

}  // namespace prun
