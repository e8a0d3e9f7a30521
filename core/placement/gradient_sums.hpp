// Sums gradients over the ranks of an axis, in functions of their own, which may run under backward.
#pragma once

#include "placement/axis_state.hpp"

namespace prun {

// Sums a value over its axis, before that op; it takes the largest if it is a partial maximum.
void add_sum(const AxisState& axis, Id segment, FunctionKind function, Id id, Id before);

// Sums a gradient in `reduce`. If it travels in another type than it is kept in, all casts to that type come
// first and all casts back last, so that it is one exchange.
void sum_gradient(AxisState& axis, Id id);

}  // namespace prun
