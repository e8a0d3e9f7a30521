// Puts single values over a recipe from outside: `--set optimizer.lr=3e-4`, and edits from code.
#pragma once

#include <string>
#include <string_view>

#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

// `source` is the override as the user wrote it: `prefix` (such as "--set "), then path=value. The value
// stays bare text until a schema gives it a type. A path walks tables and, by index, lists:
// `strategy.0.stage`. An index one past the end adds an item. Reports a malformed override.
void apply_override(Node& root, const std::shared_ptr<const Source>& source, std::string_view prefix,
                    Diagnostics& diagnostics);

}  // namespace prun::recipe
