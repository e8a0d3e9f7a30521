// Converts the arguments of Megatron-LM that describe a model's experts, and say which ranks have them.
#pragma once

#include "convert/layout.hpp"

namespace prun::convert {

// Converts, for a model with experts, all arguments that begin with moe- or expert-, and num-experts.
void convert_experts(Transfer& transfer, const Axes& axes);

}  // namespace prun::convert
