// Reads one TOML text into a tree. It is the only user of the TOML library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "recipe/diagnostics.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

// ------------------------------------------------------------------- toml reader

// Returns nothing when the text is no TOML or exceeds a bound; the reason is then in `diagnostics`. The
// bounds are: keys and values nest 16 deep each, 4096 keys.
std::optional<Node> read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

// ------------------------------------------------------------------- toml precheck
// Refuses the few texts that the TOML library itself does not survive, before it sees them:
// - dotted keys that nest too deep: it builds one nested table per dot and takes them down by recursion;
// - a table header that does not begin with a name: it takes one for granted;
// - characters beyond ASCII outside quotes and comments, where TOML has none: its test for odd blanks is
//   undefined for most letters. It makes that test once inside a string too, after a backslash that continues
//   a line; and what begins with a letter or digit and goes on with a quote is no string to it.

inline constexpr int max_key_depth = 16;

struct Refusal {
  std::uint32_t line = 1;
  std::uint32_t column = 1;  // counted in code points
  std::string_view reason;
};

// Returns the first such place, if there is one.
std::optional<Refusal> precheck_toml(std::string_view text);

}  // namespace prun::recipe
