// Lists the frameworks whose configurations are read, and converts each of their settings.
#pragma once

#include "base/json.hpp"
#include "convert/shell_words.hpp"
#include "convert/transfer.hpp"
#include "recipe/node.hpp"

namespace prun::convert {

// Converts a ds_config, which deepspeed.initialize() and Hugging Face's Trainer take.
void convert_deepspeed(Transfer& transfer, const JsonValue& root);
// Converts the arguments of pretrain_gpt.py, with those of the launcher before it.
void convert_megatron(Transfer& transfer, const ShellCommand& command);
// Converts a train_config of torchtitan.
void convert_torchtitan(Transfer& transfer, const recipe::Node& root);

// Converts a configuration of axolotl.
void convert_axolotl(Transfer& transfer, std::string_view yaml);

}  // namespace prun::convert
