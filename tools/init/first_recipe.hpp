// Writes a recipe for a user's first run on this machine.
#pragma once

#include <filesystem>
#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- first recipe

struct RecipeRequest {
  std::string name = "first";
  std::string model = "gpt";   // is "gpt", "llama", or a config.json of Hugging Face, or a folder with one
  std::string data = ".";      // is text: a file or a folder; or tokens: .bin, .idx
  std::int64_t ranks = 0;      // 0: one for each unit of the device
  std::string goal = "quick";  // is "quick": a minute, or "train": a model worth keeping
};

// Returns the text of a recipe that prun check accepts: for all units of the device that `auto` stands for,
// with the largest microbatch, of a few, that fits there. Throws what prun check would throw where none does.
std::string first_recipe(const RecipeRequest& request, PluginHost& plugins);

// ------------------------------------------------------------------- finetune recipe
// Writes a recipe that trains a model of Hugging Face further on conversations, for this machine.

struct FinetuneRequest {
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
std::string finetune_recipe(const FinetuneRequest& request, PluginHost& plugins);

}  // namespace prun
