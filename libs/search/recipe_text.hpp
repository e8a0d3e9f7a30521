// Writes a checked recipe as text again, in part.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "recipe/recipe.hpp"

namespace prun {

// Returns the whole recipe but one of its sections ("mesh", "strategy.1"), defaults included; `comment` gives
// the comment after an entry.
std::string toml_without(const Recipe& recipe, std::string_view section,
                         const std::function<std::string(const recipe::Entry&)>& comment);

}  // namespace prun
