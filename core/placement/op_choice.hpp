// Decides how one op is placed on an axis: the dimension that it is split along, or the partial sums or
// maxima that it hands on as they are.
#pragma once

#include <optional>

#include "placement/axis_sums.hpp"

namespace prun {

// Says whether the ranks' values of operand i may be combined behind the op.
bool passes(const OpShape& shape, const AxisPlacement& incomplete, std::size_t i);

class OpChoice {
 public:
  OpChoice(const AxisState& axis, const AxisSums& sums)
      : axis_(axis), program_(axis.program()), sums_(sums) {}

  // Returns the split that the op itself prefers, then the requested one.
  std::optional<Name> split(const Op& op, const OpShape& shape) const;
  // Returns partial sums, or maxima, if the op hands them on as they are; otherwise replicated.
  AxisPlacement passed_on(const Op& op, const OpShape& shape) const;
  // Returns the placement that an op split along a dimension gives results that lack it.
  AxisPlacement left_by(const Op& op, const OpShape& shape, const Name& split) const;

 private:
  bool is_asked(const Name& dim) const;
  bool has(Id id, const Name& dim) const { return has_dim(program_.value(id), dim); }
  bool has_whole_state(const Op& op, const Name& dim) const;
  bool can_be_had(const Op& op, const OpShape& shape, const Split& split) const;
  bool passes_on(const Op& op, const OpShape& shape, const AxisPlacement& one) const;

  const AxisState& axis_;
  const Program& program_;
  const AxisSums& sums_;
};

}  // namespace prun
