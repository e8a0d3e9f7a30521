// Places values on an axis that exist before a step: parameters, their gradients and states, inputs, runtime
// values that count.
#pragma once

#include "placement/axis_state.hpp"

namespace prun {

// Shards these values on the first requested dimension; those that forward's ops prefer to split come first.
// State of another shape than its parameter's is sharded only where the parameter is: it may lack those
// dimensions.
void place_what_stays(AxisState& axis);

}  // namespace prun
