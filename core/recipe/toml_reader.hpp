// Reads one TOML text into a tree. It is the only user of the TOML library.
#pragma once

#include <memory>
#include <optional>

#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

// Returns nothing when the text is no TOML or exceeds a bound; the reason is then in `diagnostics`. The
// bounds are: keys and values nest 16 deep each, 4096 keys.
std::optional<Node> read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

}  // namespace prun::recipe
