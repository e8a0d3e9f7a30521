#include "runs/log_line.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.hpp"

namespace prun {
namespace {

constexpr std::size_t most_fields = 64;

constexpr std::string_view blanks = " \t\r";

// Returns the first place from `at` on that holds no blank, which other writers put between what JSON is made
// of.
std::size_t past_blanks(std::string_view line, std::size_t at) {
  return std::min(line.find_first_not_of(blanks, at), line.size());
}

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// Returns where the text ends that begins with the quote at `at`: behind its closing quote; 0: it does not
// end.
std::size_t end_of_text(std::string_view line, std::size_t at) {
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      return i + 1;
  }
  return 0;
}

// Returns where a value ends, before the comma or bracket that follows it; 0 where there is none.
std::size_t end_of_value(std::string_view line, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      i = end_of_text(line, i);
      if (i == 0) return 0;
      --i;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (depth > 0 && (c == ']' || c == '}')) {
      --depth;
    } else if (depth == 0 && (c == ',' || c == '}')) {
      return i;
    }
  }
  return 0;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

bool LogLine::parse(std::string_view line) {
  fields_.clear();
  line = without_blanks_behind(line.substr(past_blanks(line, 0)));
  if (line.size() < 2 || line.front() != '{' || line.back() != '}') return false;
  std::size_t at = past_blanks(line, 1);
  if (line[at] == '}') return at + 1 == line.size();
  while (at < line.size() && line[at] == '"' && fields_.size() < most_fields) {
    const std::size_t key = end_of_text(line, at);
    const std::size_t colon = key == 0 ? line.size() : past_blanks(line, key);
    if (colon == line.size() || line[colon] != ':') return false;
    const std::size_t value = past_blanks(line, colon + 1), end = end_of_value(line, value);
    if (end == 0 || end == value) return false;
    fields_.push_back(
        {line.substr(at + 1, key - at - 2), without_blanks_behind(line.substr(value, end - value))});
    if (line[end] == '}') return end + 1 == line.size();
    at = past_blanks(line, end + 1);
  }
  return false;
}

std::string_view LogLine::raw(std::string_view key) const {
  for (const Field& field : fields_)
    if (field.key == key) return field.value;
  return {};
}

std::optional<double> LogLine::number(std::string_view key) const {
  const std::string_view value = raw(key);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value == "\"nan\"") return std::nan("");
  if (value == "\"inf\"") return infinity;
  if (value == "\"-inf\"") return -infinity;
  return number_of<double>(value);
}

std::int64_t LogLine::integer(std::string_view key, std::int64_t fallback) const {
  return number_of<std::int64_t>(raw(key)).value_or(fallback);
}

bool LogLine::flag(std::string_view key, bool fallback) const {
  const std::string_view value = raw(key);
  return value == "true" ? true : value == "false" ? false : fallback;
}

std::string LogLine::text(std::string_view key) const {
  const std::string_view value = raw(key);
  if (value.empty() || value.front() != '"') return "";
  try {
    return parse_json(value, "text").as_string();
  } catch (const Error&) {
    return "";
  }
}

bool LogLine::is(std::string_view key, std::string_view plain_text) const {
  const std::string_view value = raw(key);
  return value.size() == plain_text.size() + 2 && value.front() == '"' &&
         value.substr(1, plain_text.size()) == plain_text;
}

}  // namespace prun
