// Fuses gradients that one kernel computes in the place of two, for devices that have such kernels.
#pragma once

#include "prun/program.hpp"

namespace prun {

// Adds what bypasses a norm to its input's gradient as that is written: it puts layernorm_input_grad and
// rmsnorm_input_grad with a residual in the place of an `add`.
void fuse_residual_gradients(ProgramRef program);

// Puts linear_gelu_grad in the place of linear_input_grad and gelu_grad, for values in bf16: other types gain
// nothing.
void fuse_gelu_gradients(ProgramRef program);

}  // namespace prun
