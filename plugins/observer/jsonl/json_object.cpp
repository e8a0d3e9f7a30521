// Escapes text and prints numbers.
#include "json_object.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "prun/visible.hpp"

namespace prun::jsonl {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto byte = static_cast<unsigned char>(c);
  constexpr std::string_view hex = "0123456789abcdef";
  if (letters::is_control(byte))
    out.append("\\u00").append(1, hex[byte >> 4]).append(1, hex[byte & 15u]);
  else
    out += c;
}

// A letter that a terminal would act on is written by its number, in halves where it is above 16 bits.
void append_number(std::string& out, char32_t letter) {
  const auto unit = [&](char32_t value) {
    std::array<char, 16> text;
    std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(value));
    out += text.data();
  };
  if (letter < 0x10000) return unit(letter);
  unit(0xd800 + ((letter - 0x10000) >> 10));
  unit(0xdc00 + ((letter - 0x10000) & 0x3ffu));
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const letters::Letter letter = letters::first(text);
    if (!letter.valid)
      out += replacement;
    else if (letter.bytes == 1)
      append_ascii(out, text[0]);
    else if (letters::is_control(letter.value))
      append_number(out, letter.value);
    else
      out += text.substr(0, letter.bytes);
    text.remove_prefix(letter.bytes);
  }
  return out + "\"";
}

template <class Number>
std::string shortest(Number value) {
  std::array<char, 32> digits;
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return std::string(digits.data(), result.ptr);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return shortest(value);
}

}  // namespace

JsonObject& JsonObject::raw(std::string_view key, std::string_view value) {
  if (!fields_.empty()) fields_ += ',';
  fields_ += quoted(key);
  fields_ += ':';
  fields_ += value;
  return *this;
}

JsonObject& JsonObject::text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
JsonObject& JsonObject::integer(std::string_view key, std::int64_t value) {
  return raw(key, shortest(value));
}
JsonObject& JsonObject::flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }

JsonObject& JsonObject::objects(std::string_view key, const std::vector<JsonObject>& values) {
  std::string list;
  for (const JsonObject& value : values) list += (list.empty() ? "" : ",") + value.str();
  return raw(key, "[" + list + "]");
}

JsonObject& JsonObject::object(std::string_view key, const JsonObject& value) {
  return raw(key, value.str());
}

JsonObject& JsonObject::number(std::string_view key, double value) { return raw(key, number_text(value)); }

JsonObject& JsonObject::numbers(std::string_view key, const std::vector<double>& values) {
  std::string list;
  for (const double value : values) list += (list.empty() ? "" : ",") + number_text(value);
  return raw(key, "[" + list + "]");
}

}  // namespace prun::jsonl
