// The arguments of Megatron-LM that say how the experts of a model are, and which ranks have them.
#pragma once

#include "convert/layout.hpp"

namespace prun::convert {

// Converts, for a model with experts, all that begins with moe- or expert-, and num-experts.
void convert_experts(Transfer& transfer, const Axes& axes);

}  // namespace prun::convert
