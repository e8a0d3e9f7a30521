// Products in fp8 (prun/fp8_blocks.hpp): which ops multiply so. A program is edited once it is placed, so
// that what ranks share out is known.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Counts layers at either end of the model whose products stay as they are: repetitions of segments between
// the first and the last, of those that have a product in fp8 otherwise. What stands in front of such first
// layers, or behind such last ones, stays as well.
struct LayersInCompute {
  std::int64_t first = 0, last = 0;
};

// Tells all ops that can and whose operands come in blocks. Throws `unsupported` where ranks would have parts
// of a block or an op cannot leave layers out, `bad_input` where no op or no layer is left.
void multiply_in_fp8(Program& program, LayersInCompute layers = {});

// Returns the share of the layers of its segment in which an op does.
double layers_in_fp8(const Program& program, Id op);

// Returns, of the FLOPs of all ops that can multiply so, the share of those that do.
double share_in_fp8(const Program& program);

}  // namespace prun
