// Refuses the few texts that the TOML library itself does not survive, before it sees them:
// - dotted keys that nest too deep: it builds one nested table per dot and takes them down by recursion;
// - a table header that does not begin with a name: it takes one for granted;
// - characters beyond ASCII outside quotes and comments, where TOML has none: its test for odd blanks is
//   undefined for most letters. It makes that test once inside a string too, after a backslash that continues
//   a line; and what begins with a letter or digit and goes on with a quote is no string to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace prun::recipe {

inline constexpr int max_key_depth = 16;

struct Refusal {
  std::uint32_t line = 1;
  std::uint32_t column = 1;  // counted in code points
  std::string_view reason;
};

// Returns the first such place, if there is one.
std::optional<Refusal> precheck_toml(std::string_view text);

}  // namespace prun::recipe
