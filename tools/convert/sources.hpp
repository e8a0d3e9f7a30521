// The frameworks whose configurations are read: what each of their settings means in a recipe.
#pragma once

#include "base/json.hpp"
#include "convert/shell_words.hpp"
#include "convert/transfer.hpp"
#include "recipe/node.hpp"

namespace prun::convert {

// A ds_config, as deepspeed.initialize() and Hugging Face's Trainer take it.
void convert_deepspeed(Transfer& transfer, const JsonValue& root);
// The arguments of pretrain_gpt.py, with those of the launcher before it.
void convert_megatron(Transfer& transfer, const ShellCommand& command);
// A train_config of torchtitan.
void convert_torchtitan(Transfer& transfer, const recipe::Node& root);

}  // namespace prun::convert
