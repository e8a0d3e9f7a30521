// Writes a resolved recipe as TOML.
#include <algorithm>

#include "recipe/recipe.hpp"

namespace prun::recipe {

namespace {

constexpr std::size_t comment_column = 40;

// "lr = 0.0003" and, in a column of its own, where it comes from.
std::string line_of(const Entry& entry) {
  std::string line = entry.key + " = " + to_toml(*entry.value);
  line.resize(std::max(line.size() + 2, comment_column), ' ');
  return line + "# " + describe(entry.at) + "\n";
}

}  // namespace

std::string Recipe::resolved_toml() const {
  std::string out;
  for (const std::string& name : resolved_->emptied) out += name + " = []\n";
  for (const RecipeSection& section : all_sections()) {
    std::string lines;
    for (const Entry& entry : section.entries())
      if (entry.value) lines += line_of(entry);
    if (lines.empty()) continue;
    out += (out.empty() ? "" : "\n") + section.label() + "\n" + lines;
  }
  return out;
}

}  // namespace prun::recipe
