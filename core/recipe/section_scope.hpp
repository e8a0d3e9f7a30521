// Describes one section of a recipe, while it is being resolved.
#pragma once

#include <string>
#include <vector>

#include "recipe/resolve.hpp"

namespace prun::recipe {

// Holds an option, and who declares it: "core", "strategy plugin 'zero'".
struct Declared {
  Option option;
  std::string by;
};

struct Scope {
  const SectionRule& rule;
  std::string path;
  const Node* table;  // null if the recipe does not have it
  std::string plugin;
  bool plugin_known = true;  // otherwise its keys cannot be distinguished from mistakes
  std::vector<Declared> declared;
  std::size_t first = 0;  // number of its first entry

  // Returns a label such as "[model]" or "[[strategy]] 'zero'".
  std::string label() const;
};

// Says whether a path is one of core's sections, and not one of its keys.
bool is_section(std::string_view path);

// Returns "; it is a choice of schedule.kind" if a table stands in place of the text that one of its keys
// takes.
std::string chosen_by(const Node& node, const Option& option);

}  // namespace prun::recipe
