// The LM head for a vocabulary that lies on mesh axes: each `lm_head` becomes lm_head_scan, all_reduce_max
// over each of them, lm_head_rescale, lm_head_loss and lm_head_grad, where it stood in forward. The sums over
// the axes (of scaled, hit and dx) are not written here: they follow from where the vocabulary lies.
#pragma once

#include "program/program.hpp"

namespace prun {

// After add_backward and before place_on_mesh. dx and the weight's accumulator stay the values they were.
void split_head(Program& program, const std::vector<AxisId>& axes);

}  // namespace prun
