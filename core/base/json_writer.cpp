#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/json.hpp"
#include "prun/visible.hpp"

namespace prun {
namespace {

// Returns the length of the well-formed UTF-8 sequence at the start of `text`, or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (text.empty()) return 0;
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return overlong || surrogate || code > 0x10ffff ? 0 : length;
}

// Returns the length of the run at the start of `text` that a JSON string holds as it is: ASCII without
// quotes, backslashes and control characters.
std::size_t plain_length(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), plain) - text.begin());
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  constexpr std::string_view hex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(c);
  if (const std::size_t found = escaped.find(c); found != std::string_view::npos) {
    out += {'\\', letters[found]};
  } else if (letters::is_control(code)) {
    out += {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15u]};
  } else {
    out += c;
  }
}

// Appends a letter of several bytes. One that a terminal would act on is written by its number, which readers
// take for the same.
void append_letter(std::string& out, std::string_view bytes) {
  const char32_t code = letters::first(bytes).value;
  if (!letters::is_control(code)) {
    out += bytes;
    return;
  }
  const auto number = [&](char32_t unit) {
    char text[16];
    std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(unit));
    out += text;
  };
  if (code < 0x10000) return number(code);
  number(0xd800 + ((code - 0x10000) >> 10));
  number(0xdc00 + ((code - 0x10000) & 0x3ffu));
}

}  // namespace

void JsonWriter::before_value() {
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

JsonWriter& JsonWriter::open(bool is_object) {
  before_value();
  scopes_.push_back({is_object});
  text_ += is_object ? '{' : '[';
  return *this;
}

JsonWriter& JsonWriter::close(bool is_object) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object == is_object && !named_, "unmatched end");
  scopes_.pop_back();
  text_ += is_object ? '}' : ']';
  return *this;
}

JsonWriter& JsonWriter::name(std::string_view name) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object && !named_, "a name belongs into an object");
  if (!scopes_.back().empty) text_ += ',';
  append_string(name);
  text_ += ':';
  named_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::write_token(std::string_view token) {
  before_value();
  text_ += token;
  return *this;
}

template <class Real>
JsonWriter& JsonWriter::write_real(Real number) {
  if (!std::isfinite(number)) {
    if (policy_ == NonFinite::write_null) return null();
    throw_error(ErrorCode::bad_input, "JSON cannot hold the number ", number,
                "; write null or a string instead");
  }
  char digits[32];
  const auto result = std::to_chars(std::begin(digits), std::end(digits), number);
  PRUN_CHECK(result.ec == std::errc(), "number needs more than 32 characters");
  return write_token(std::string_view(digits, static_cast<std::size_t>(result.ptr - digits)));
}
template JsonWriter& JsonWriter::write_real(float);
template JsonWriter& JsonWriter::write_real(double);

JsonWriter& JsonWriter::real(double number) {
  value(number);
  const std::size_t start = text_.find_last_of(",:[") + 1;
  if (text_.find_first_of(".e", start) == std::string::npos) text_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::value(const JsonValue& tree) {
  switch (tree.kind()) {
    case JsonKind::null: return null();
    case JsonKind::boolean: return value(tree.as_bool());
    case JsonKind::integer: return value(tree.as_int64());
    case JsonKind::unsigned_integer: return value(tree.as_uint64());
    case JsonKind::real: return value(tree.as_double());
    case JsonKind::string: return value(tree.as_string());
    case JsonKind::array:
      begin_array();
      for (const JsonValue& item : tree.as_array()) value(item);
      return end_array();
    case JsonKind::object:
      begin_object();
      for (const JsonMember& item : tree.as_object().members()) member(item.name, item.value);
      return end_object();
  }
  return *this;
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t plain = plain_length(text.substr(at)); plain > 0) {
      text_.append(text.substr(at, plain));
      at += plain;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) throw_error(ErrorCode::bad_input, "JSON text must be UTF-8, but byte ", at, " is not");
    if (length == 1)
      append_escaped(text_, text[at]);
    else
      append_letter(text_, text.substr(at, length));
    at += length;
  }
  text_ += '"';
}

std::string JsonWriter::take() {
  PRUN_CHECK(scopes_.empty() && !text_.empty(), "the JSON text is not finished");
  return std::exchange(text_, {});
}

}  // namespace prun
