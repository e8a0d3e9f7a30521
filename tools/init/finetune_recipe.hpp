// Writes a recipe that trains a model of Hugging Face further on conversations, for this machine.
#pragma once

#include <filesystem>
#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

struct FinetuneWish {
  std::string name = "finetune";
  std::filesystem::path from;         // the model's folder, with its tokenizer
  std::filesystem::path data;         // a file of conversations, one a line, or a folder of such
  std::string chat_template = "own";  // is "own", or one that is known by name
  std::int64_t ranks = 0;             // 0: one for each unit of the device
  bool lora = false;                  // trains adapters beside weights that stay as they are
};

// Returns the text of a recipe that prun check accepts. Of the ways to have a model in memory it takes the
// first that fits: all on the device, activations computed again, state in parts, all in the host's memory.
// Throws what prun check would throw where none does.
std::string finetune_recipe(const FinetuneWish& wish, PluginHost& plugins);

}  // namespace prun
