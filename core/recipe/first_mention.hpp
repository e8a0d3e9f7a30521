// Where a name that a TOML text gives twice stands first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prun::recipe {

// The end of a message about the table or the key of that line: "; the first is in line 3, ..."; empty where
// none is found, as where one of the two is dotted.
std::string first_mention(std::string_view text, std::uint32_t line);

}  // namespace prun::recipe
