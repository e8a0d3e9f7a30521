// Gives one written value its declared type, or says why it cannot have it.
#pragma once

#include <optional>
#include <string_view>

#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"
#include "recipe/schema.hpp"

namespace prun::recipe {

// Checks type, range and choices; `subject` names the option in messages: "'lr' in [optimizer]".
std::optional<Value> convert(const Node& node, const Option& option, std::string_view subject,
                             Diagnostics& diagnostics);

}  // namespace prun::recipe
