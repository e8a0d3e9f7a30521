// Fuses attention with the packed projection, for devices that have kernels for attention_packed.
#pragma once

#include "prun/program.hpp"

namespace prun {

// Where nothing else reads queries, keys and values apart, they are never stored apart, and neither do their
// gradients.
void fuse_packed_attention(ProgramRef program);

}  // namespace prun
