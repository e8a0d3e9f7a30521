// Decides how an op runs on one axis: along which dimension it is split, or whether it passes partial sums or
// maxima on. Example: `linear` with a weight sharded along `ffn` is split along `ffn`. Going up it sums over
// `hidden`, so its result is sharded along `ffn`; going down it sums over `ffn`, so its result is a partial
// sum, which a cast passes on.
#pragma once

#include <optional>

#include "placement/axis_sums.hpp"

namespace prun {

// Returns true if operand i may stay incomplete because the op's result can be reduced instead.
bool passes(const OpShape& shape, const AxisPlacement& incomplete, std::size_t i);

class OpChoice {
 public:
  OpChoice(const AxisState& axis, const AxisSums& sums)
      : axis_(axis), program_(axis.program()), sums_(sums) {}

  // Dimensions that the op prefers come before the order of requests.
  std::optional<Name> split(const Op& op, const OpShape& shape) const;
  // Returns partial or maximum if the op passes them on, otherwise replicated.
  AxisPlacement passed_on(const Op& op, const OpShape& shape) const;
  // Returns the placement of results without the split dimension.
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
