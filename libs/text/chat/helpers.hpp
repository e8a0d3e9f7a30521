// What functions, filters and tests of templates share.
#pragma once

#include <algorithm>

#include "base/text.hpp"
#include "chat/functions.hpp"

namespace prun::chat {

[[noreturn]] inline void trouble(const std::string& what) { throw Trouble{what}; }
[[noreturn]] inline void not_there(const std::string& what) {
  trouble(what + " is not something that prun has in templates");
}

inline const std::string& need_text(const Value& value, std::string_view who) {
  if (const auto* const text = value.as<std::string>()) return *text;
  trouble(std::string(who) + " is asked of " + value.kind() + ", not of a text");
}
// Flags are numbers, as in Python.
inline std::optional<std::int64_t> whole_number(const Value& value) {
  if (const bool* const flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* const number = value.as<std::int64_t>()) return *number;
  return {};
}
inline std::optional<double> any_number(const Value& value) {
  if (const auto* const number = value.as<double>()) return *number;
  const std::optional<std::int64_t> whole = whole_number(value);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}
inline std::int64_t need_number(const Value& value, std::string_view who) {
  if (const std::optional<std::int64_t> number = whole_number(value)) return *number;
  trouble(std::string(who) + " takes whole numbers, not " + value.kind());
}
inline const Value& argument(std::span<const Value> arguments, std::size_t i, std::string_view who) {
  if (i >= arguments.size()) trouble(std::string(who) + " lacks an argument");
  return arguments[i];
}
inline void at_most(std::span<const Value> arguments, std::size_t count, std::string_view who) {
  if (arguments.size() > count) trouble(std::string(who) + " is given more than prun has in templates");
}

// Appends to a text that a template makes.
inline void append(std::string& to, std::string_view more) {
  if (more.size() > most_bytes - std::min(most_bytes, to.size())) trouble("the text becomes too long");
  to += more;
}

// A list that a template makes.
class Growing {
 public:
  void add(Value value) {
    bytes_ += value.extent().bytes;
    if (bytes_ > most_bytes) trouble("the list becomes too long");
    list_.push_back(std::move(value));
  }
  Value value() { return Value::of(std::move(list_)); }

 private:
  List list_;
  std::size_t bytes_ = 0;
};

inline std::string_view first_letter(std::string_view text) {
  return text.substr(0, text.empty() ? 0 : decode_utf8(text).bytes);
}
// Calls body(letter) for each.
template <class Body>
void each_letter(std::string_view text, Body&& body) {
  while (!text.empty()) {
    const std::string_view letter = first_letter(text);
    text.remove_prefix(letter.size());
    body(letter);
  }
}
inline std::int64_t letters_in(std::string_view text) {
  std::int64_t letters = 0;
  each_letter(text, [&](std::string_view) { ++letters; });
  return letters;
}

}  // namespace prun::chat
