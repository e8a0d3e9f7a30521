// How values lie on an axis that exist before a step: parameters, their gradients and states, inputs, runtime
// values that count.
#pragma once

#include "placement/axis_state.hpp"

namespace prun {

// Sharded on the first dimension that was asked for, in front those that ops of forward would rather split.
// State of another shape than its parameter's lies in parts only where the parameter does: the dimensions
// that it lacks may be those.
void place_what_stays(AxisState& axis);

}  // namespace prun
