// Converts a configuration of DeepSpeed, Megatron-LM or torchtitan to a recipe. Every setting of its file is
// listed by name with what becomes of it; what it leaves out and a recipe needs is asked for.
#pragma once

#include <filesystem>

#include "convert/transfer.hpp"
#include "recipe/catalog.hpp"

namespace prun::convert {

// Is a recipe's first line.
inline constexpr const char* recipe_mark = "# Written by prun convert.";

struct Converted {
  std::string recipe;                // TOML, which begins with the mark and the account, as comments
  std::vector<std::string> account;  // line by line
};

// Which framework wrote the file is seen by what is in it: JSON, TOML, or else the text of a shell. Throws
// bad_input where it is none of them, cannot be what prun trains, or lacks something that `given` does not
// have: all of it at once.
Converted convert_file(const std::filesystem::path& file, const Given& given,
                       const recipe::PluginCatalog& catalog);

}  // namespace prun::convert
