// Finds where a name that a TOML text gives twice stands first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prun::recipe {

// Returns the end of a message about the table or the key of that line: "; the first is in line 3, ..."; it
// is empty if none is found, as when one of the two is dotted.
std::string first_mention(std::string_view text, std::uint32_t line);

}  // namespace prun::recipe
