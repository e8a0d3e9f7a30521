// Reads the recipe in the folder of a run, line by line as the run wrote it there: each value with its
// origin. No plugin is asked, so it can be read wherever the folder is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

struct RecipeLine {
  std::string section;   // such as "[model]", "[[strategy]]"; empty: none yet
  std::size_t item = 0;  // counts sections of that name before it
  std::string key, value, origin;
  std::size_t number = 0;  // of the line in the text, from 0

  // Returns the path as --set names it: "model.layers", "strategy.0.stage".
  std::string path() const;

  bool by_default() const { return origin == "default"; }
};

std::vector<RecipeLine> recipe_lines(std::string_view resolved_toml);
// Reads the lines of a run's folder, old names of keys replaced by the new ones; returns nothing where it has
// no recipe.
std::vector<RecipeLine> recipe_lines_of(const std::filesystem::path& run_folder);
// Returns the recipe of a run's folder with old names of keys replaced, to be read as a recipe. Throws
// not_found if there is none.
std::string recipe_text_of(const std::filesystem::path& run_folder);

}  // namespace prun
