// Products in fp8 (prun/fp8_blocks.hpp): which ops multiply so. A program is edited once it is placed, so
// that what ranks share out is known.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Tells all ops that can and whose operands come in blocks. Throws `unsupported` where ranks would have parts
// of a block, `bad_input` where no op is left.
void multiply_in_fp8(Program& program);

// Returns, of the FLOPs of all ops that can multiply so, the share of those that do.
double share_in_fp8(const Program& program);

}  // namespace prun
