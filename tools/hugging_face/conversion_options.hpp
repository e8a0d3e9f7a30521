// Reads the options that prun import and prun export share.
#pragma once

#include "cli/command_table.hpp"
#include "hugging_face/hugging_face.hpp"

namespace prun {

inline constexpr CommandOption weights_type = {"--type", "bf16|fp16|fp32",
                                               "the type of the weights; as they are otherwise"};

Conversion conversion_of(const Arguments& arguments);

}  // namespace prun
