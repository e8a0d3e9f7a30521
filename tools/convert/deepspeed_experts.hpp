// Reads the section expert_parallel of DeepSpeed's JSON, which distributes the experts of a model over ranks.
#pragma once

#include "convert/layout.hpp"

namespace prun::convert {

void convert_deepspeed_experts(Transfer& transfer, const Axes& axes);

}  // namespace prun::convert
