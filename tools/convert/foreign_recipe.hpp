// Converts a configuration of DeepSpeed, Megatron-LM, torchtitan or axolotl to a recipe. Every setting of its
// file is listed by name with what becomes of it; settings that a recipe needs and it leaves out are asked
// for.
#pragma once

#include <filesystem>

#include "convert/transfer.hpp"
#include "recipe/schema.hpp"

namespace prun::convert {

// Is a recipe's first line.
inline constexpr const char* recipe_mark = "# Written by prun convert.";

struct Converted {
  std::string recipe;                // is TOML, which begins with the mark and the account, as comments
  std::vector<std::string> account;  // is line by line
};

// The contents show which framework wrote the file: JSON, TOML, YAML by its name, or else the text of a
// shell. Throws bad_input where it is none of them, cannot be what prun trains, or lacks settings that
// `given` does not have: all of them at once.
Converted convert_file(const std::filesystem::path& file, const Given& given,
                       const recipe::PluginCatalog& catalog);

}  // namespace prun::convert
