// Holds what expressions of templates may call.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "chat/value.hpp"

namespace prun::chat {

// ------------------------------------------------------------------- day
// The day that templates take for today.

struct Day {
  int year = 0, month = 0, day = 0;  // from 1 on
};

// Reads year-month-day, as 2026-07-31; nothing where it is no day.
std::optional<Day> read_day(std::string_view text);
// Writes it as strftime() does, at midnight. Throws Trouble for what prun does not have.
std::string text_of_day(const Day& day, std::string_view format);

// ------------------------------------------------------------------- functions

// Why a template cannot be evaluated; whoever knows its name and line says where.
struct Trouble {
  std::string what;
};

using Named = std::vector<std::pair<std::string, Value>>;

// Knows all but namespace() and macros.
Value call_function(const std::string& name, std::span<const Value> arguments, const Named& named,
                    const std::optional<Day>& today);
Value call_method(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named);
Value call_text_method(const std::string& name, const std::string& text, std::span<const Value> arguments);
Value call_filter(const std::string& name, const Value& of, std::span<const Value> arguments,
                  const Named& named);
bool passes_test(const std::string& name, const Value& value, std::span<const Value> arguments);
Value apply_binary(const std::string& sign, const Value& left, const Value& right);
bool compares(const std::string& sign, const Value& left, const Value& right);
// Writes a value as Python's str() does.
std::string text_of(const Value& value);
// Writes a value as transformers' tojson does, with the arguments that it takes.
std::string json_of(const Value& value, std::span<const Value> arguments, const Named& named);

// Returns of['key'], of.name and of[first:last:step] as Jinja does.
Value item_of(const Value& of, const Value& key);
Value attribute_of(const Value& of, const std::string& name);
Value sliced(const Value& of, std::optional<std::int64_t> first, std::optional<std::int64_t> last,
             std::optional<std::int64_t> step);
// Returns what a loop goes through, as a list.
Value listed(const Value& of);

// ------------------------------------------------------------------- text methods
// Declares what methods of texts and filters share.

bool is_space(std::string_view letter);
// Returns the text without letters of the argument, or white space where there is none, at its ends.
std::string stripped(std::string_view text, std::span<const Value> arguments, bool left, bool right);
std::string replaced(const std::string& text, std::span<const Value> arguments);
std::string joined(const Value& list, const std::string& between);
std::string in_lower_case(std::string_view text);
std::string in_upper_case(std::string_view text);
std::string capitalized(std::string_view text);
std::string in_title_case(std::string_view text);

// ------------------------------------------------------------------- helpers
// Declares what functions, filters and tests of templates share.

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
