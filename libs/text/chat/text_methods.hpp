// What methods of texts and filters share.
#pragma once

#include "chat/functions.hpp"

namespace prun::chat {

bool is_space(std::string_view letter);
// Returns the text without letters of the argument, or white space where there is none, at its ends.
std::string stripped(std::string_view text, std::span<const Value> arguments, bool left, bool right);
std::string replaced(const std::string& text, std::span<const Value> arguments);
std::string joined(const Value& list, const std::string& between);
std::string in_lower_case(std::string_view text);
std::string in_upper_case(std::string_view text);
std::string capitalized(std::string_view text);
std::string in_title_case(std::string_view text);

}  // namespace prun::chat
