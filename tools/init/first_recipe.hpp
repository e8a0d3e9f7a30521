// Writes a recipe for a user's first run on this machine.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

struct RecipeWish {
  std::string name = "first";
  std::string model = "gpt";   // is "gpt", "llama", or a config.json of Hugging Face, or a folder with one
  std::string data = ".";      // is text: a file or a folder; or tokens: .bin, .idx
  std::int64_t ranks = 0;      // 0: one for each unit of the device
  std::string goal = "quick";  // is "quick": a minute, or "train": a model worth keeping
};

// Returns the text of a recipe that prun check accepts: for all units of the device that `auto` stands for,
// with the largest microbatch, of a few, that fits there. Throws what prun check would throw where none does.
std::string first_recipe(const RecipeWish& wish, PluginHost& plugins);

}  // namespace prun
