// SPDX-License-Identifier: Apache-2.0
// Writes JSON: an observer's lines, `--json` output, manifests.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prun/error.hpp"
#include "prun/visible.hpp"

namespace prun {

// Says what a writer does with NaN and infinities, for which JSON has no spelling: `write_text` makes them
// the strings "nan", "inf" and "-inf".
enum class NonFinite { refuse, write_null, write_text };

// Says what a writer does with text that is not UTF-8; `replace` writes U+FFFD for each byte that does not
// fit.
enum class BrokenText { refuse, replace };

// Builds one JSON text, on one line. Wrong use (a value without a name in an object, an unclosed scope,
// two values on top) is an internal error. The caller keeps the names of an object distinct.
// Numbers are written in the shortest form that reads back as the same value of the same type. Letters that a
// terminal would act on are written by their number, which readers take for the same.
class JsonWriter {
 public:
  explicit JsonWriter(NonFinite numbers = NonFinite::refuse, BrokenText texts = BrokenText::refuse)
      : numbers_(numbers), texts_(texts) {}

  JsonWriter& begin_object() { return open(true); }
  JsonWriter& end_object() { return close(true); }
  JsonWriter& begin_array() { return open(false); }
  JsonWriter& end_array() { return close(false); }
  JsonWriter& name(std::string_view name);  // throws bad_input for broken text, unless that is replaced

  JsonWriter& null() { return write_token("null"); }
  JsonWriter& value(std::string_view text);  // throws as name() does
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number) { return write_real(number); }
  JsonWriter& value(float number) { return write_real(number); }
  // Writes a number, always with a point, for readers that distinguish 8.0 from 8.
  JsonWriter& real(double number);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::same_as<T, bool>) return write_token(number ? "true" : "false");
    return write_token(std::to_string(number));
  }
  // Writes what write_json(writer, item) knows.
  template <class T>
  requires requires(JsonWriter& writer, const T& item) { write_json(writer, item); }
  JsonWriter& value(const T& item) {
    write_json(*this, item);
    return *this;
  }
  template <class T>
  JsonWriter& member(std::string_view key, const T& item) {
    return name(key).value(item);
  }

  // Returns the finished text; the writer is empty again and can build the next one.
  std::string take();

 private:
  struct Scope {
    bool is_object;
    bool empty = true;
  };

  void before_value();
  JsonWriter& open(bool is_object);
  JsonWriter& close(bool is_object);
  JsonWriter& write_token(std::string_view token);
  template <class Real>
  JsonWriter& write_real(Real number);
  void append_string(std::string_view text);
  void append_letter(const letters::Letter& letter, std::string_view bytes);
  void append_number(char32_t letter);

  NonFinite numbers_;
  BrokenText texts_;
  std::string text_;
  std::vector<Scope> scopes_;
  bool named_ = false;  // whether a name waits for its value
};

inline void JsonWriter::before_value() {
  if (scopes_.empty()) {
    PRUN_CHECK(text_.empty(), "a JSON text holds one value");
    return;
  }
  Scope& scope = scopes_.back();
  PRUN_CHECK(scope.is_object == named_, "values in an object, and only those, have a name");
  if (!scope.is_object && !scope.empty) text_ += ',';
  scope.empty = false;
  named_ = false;
}

inline JsonWriter& JsonWriter::open(bool is_object) {
  before_value();
  scopes_.push_back({is_object});
  text_ += is_object ? '{' : '[';
  return *this;
}

inline JsonWriter& JsonWriter::close(bool is_object) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object == is_object && !named_, "unmatched end");
  scopes_.pop_back();
  text_ += is_object ? '}' : ']';
  return *this;
}

inline JsonWriter& JsonWriter::name(std::string_view name) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object && !named_, "a name belongs into an object");
  if (!scopes_.back().empty) text_ += ',';
  append_string(name);
  text_ += ':';
  named_ = true;
  return *this;
}

inline JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

inline JsonWriter& JsonWriter::write_token(std::string_view token) {
  before_value();
  text_ += token;
  return *this;
}

template <class Real>
JsonWriter& JsonWriter::write_real(Real number) {
  if (!std::isfinite(number)) {
    if (numbers_ == NonFinite::write_null) return null();
    if (numbers_ == NonFinite::write_text)
      return value(std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    throw_error(ErrorCode::bad_input, "JSON cannot hold the number ", number,
                "; write null or a string instead");
  }
  char digits[32];
  const auto result = std::to_chars(std::begin(digits), std::end(digits), number);
  PRUN_CHECK(result.ec == std::errc(), "number needs more than 32 characters");
  return write_token(std::string_view(digits, static_cast<std::size_t>(result.ptr - digits)));
}

inline JsonWriter& JsonWriter::real(double number) {
  value(number);
  const std::size_t start = text_.find_last_of(",:[") + 1;
  if (std::isfinite(number) && text_.find_first_of(".e", start) == std::string::npos) text_ += ".0";
  return *this;
}

inline void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  for (std::size_t at = 0; at < text.size();) {
    const letters::Letter letter = letters::first(text.substr(at));
    if (letter.valid)
      append_letter(letter, text.substr(at, letter.bytes));
    else if (texts_ == BrokenText::replace)
      text_ += "\xEF\xBF\xBD";
    else
      throw_error(ErrorCode::bad_input, "JSON text must be UTF-8, but byte ", at, " is not");
    at += letter.bytes;
  }
  text_ += '"';
}

inline void JsonWriter::append_letter(const letters::Letter& letter, std::string_view bytes) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t", written = "\"\\bfnrt";
  if (const std::size_t found = bytes.size() == 1 ? escaped.find(bytes[0]) : escaped.npos;
      found != escaped.npos)
    text_ += {'\\', written[found]};
  else if (letters::is_control(letter.value))
    append_number(letter.value);
  else
    text_ += bytes;
}

// A letter above 16 bits is written in halves.
inline void JsonWriter::append_number(char32_t letter) {
  const auto unit = [&](char32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(value));
    text_ += text;
  };
  if (letter < 0x10000) return unit(letter);
  unit(0xd800 + ((letter - 0x10000) >> 10));
  unit(0xdc00 + ((letter - 0x10000) & 0x3ffu));
}

inline std::string JsonWriter::take() {
  PRUN_CHECK(scopes_.empty() && !text_.empty(), "the JSON text is not finished");
  return std::exchange(text_, {});
}

}  // namespace prun
