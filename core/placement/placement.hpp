// Derives, from "dimension d is sharded on axis a", the placement of every value, and the collectives that
// follow.
//
// Axis by axis, op by op, in the order a step runs them. On one axis an op is split along at most one of its
// dimensions: the first, in the order the strategies asked for them, that an operand is sharded on and that
// the op's rule does not want whole; in front of those one that the op prefers. A dimension asked for in ops
// alone is taken where another is wanted whole, and left at the next op. Operands that have the dimension are
// needed sharded on it, the others replicated; results that have it are sharded, those it is summed over for
// are partial sums, likewise partial maxima. An op that is linear in its operands passes partial sums on, a
// monotone one maxima. Where a value's placement is not the needed one, the exchange that changes it is
// inserted before the op; the sum of a gradient goes to the function `reduce`.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Places all values; it needs the mesh and the splits. Throws an Error that names what does not divide or
// cannot be exchanged.
void place_on_mesh(Program& program);

}  // namespace prun
