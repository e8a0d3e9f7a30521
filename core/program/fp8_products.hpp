// Decides which ops multiply in fp8 (prun/fp8_blocks.hpp). A program is edited once it is placed, so that it
// is known what ranks share out.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Counts layers at either end of the model whose products stay as they are: repetitions of segments between
// the first and the last, of those that otherwise have a product in fp8. Products before such first layers,
// or behind such last ones, stay as well.
struct LayersInCompute {
  std::int64_t first = 0, last = 0;
};

// Sets fp8 in all ops that can multiply so and whose operands come in blocks. Throws `unsupported` where
// ranks would have parts of a block or an op cannot leave layers out, `bad_input` where no op or no layer is
// left.
void multiply_in_fp8(Program& program, LayersInCompute layers = {});

// Returns the share of the layers of its segment in which an op multiplies in fp8.
double layers_in_fp8(const Program& program, Id op);

// Returns the share of FLOPs done in fp8, among those of all ops that can multiply so.
double share_in_fp8(const Program& program);

}  // namespace prun
