// Escapes text and prints numbers.
#include "json_object.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace prun::jsonl {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

struct Form {
  unsigned char lead_low, lead_high;      // of the first byte
  unsigned char second_low, second_high;  // of the second; further ones are 80..BF
  std::size_t size;
};
// The well-formed sequences of the Unicode standard: no overlong forms, no surrogates, none beyond 10FFFF.
constexpr std::array<Form, 8> forms = {{{0xC2, 0xDF, 0x80, 0xBF, 2},
                                        {0xE0, 0xE0, 0xA0, 0xBF, 3},
                                        {0xE1, 0xEC, 0x80, 0xBF, 3},
                                        {0xED, 0xED, 0x80, 0x9F, 3},
                                        {0xEE, 0xEF, 0x80, 0xBF, 3},
                                        {0xF0, 0xF0, 0x90, 0xBF, 4},
                                        {0xF1, 0xF3, 0x80, 0xBF, 4},
                                        {0xF4, 0xF4, 0x80, 0x8F, 4}}};

bool matches(const Form& form, std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < form.lead_low || byte(0) > form.lead_high || text.size() < form.size) return false;
  if (byte(1) < form.second_low || byte(1) > form.second_high) return false;
  for (std::size_t i = 2; i < form.size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return false;
  return true;
}

// Bytes of the character that the text begins with; 0 when it is none.
std::size_t character_size(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return 1;
  for (const Form& form : forms)
    if (matches(form, text)) return form.size;
  return 0;
}

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
  if (byte < 0x20)
    out.append("\\u00").append(1, hex[byte >> 4]).append(1, hex[byte & 15u]);
  else
    out += c;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0)
      out += replacement;
    else if (size == 1)
      append_ascii(out, text[0]);
    else
      out += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out + "\"";
}

template <class Number>
std::string shortest(Number value) {
  std::array<char, 32> digits;
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return std::string(digits.data(), result.ptr);
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

JsonObject& JsonObject::number(std::string_view key, double value) {
  if (std::isnan(value)) return raw(key, "\"nan\"");
  if (std::isinf(value)) return raw(key, value > 0 ? "\"inf\"" : "\"-inf\"");
  return raw(key, shortest(value));
}

}  // namespace prun::jsonl
