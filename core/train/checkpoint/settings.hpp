// Represents a recipe as keys and values, to be compared with another one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/recipe.hpp"

namespace prun {

// Lists keys and their values as TOML, defaults included.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_of(const Recipe& recipe);

// Returns a recipe's text that gives the same settings.
std::string to_toml(const Settings& settings);

// Says whether a key belongs to a place: where a run writes, what shows it, on what it runs, the files that
// its model comes from, whose meaning other keys have.
bool belongs_to_a_place(std::string_view key);

struct Change {
  std::string key, before, now;  // values; "nothing" if there is none
};
// Returns changes in the order of the keys.
std::vector<Change> changes(const Settings& before, const Settings& now);

}  // namespace prun
