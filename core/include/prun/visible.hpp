// SPDX-License-Identifier: Apache-2.0
// Makes untrusted text safe to print: what would move a terminal's cursor, be invisible or reverse the
// direction of text is escaped, as \x1b, \u202e or, for a byte that is not UTF-8, \xff. Letters of all
// languages stay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace prun {

namespace letters {

struct Letter {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = true;
};

// Returns the length of the sequence that a byte begins, or 0 if it begins none.
inline std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

// Returns the first letter of a text that is not empty. Broken UTF-8 gives one invalid byte.
inline Letter first(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const Letter broken{lead, 1, false};
  const std::size_t length = sequence_length(lead);
  if (length == 1) return {lead, 1, true};
  if (length == 0 || text.size() < length) return broken;
  constexpr std::array<unsigned, 5> lead_mask = {0, 0x7F, 0x1F, 0x0F, 0x07};
  constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  char32_t value = lead & lead_mask[length];
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0u) != 0x80u) return broken;
    value = (value << 6) | (next & 0x3Fu);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest[length] || value > 0x10FFFF || surrogate) return broken;
  return {value, length, true};
}

// Controls are those of ASCII and ISO 6429, and what changes the direction of letters, ends lines or
// paragraphs, shows nothing or hides text. Joiners are none: languages are written with them.
inline bool is_control(char32_t value) {
  if (value < 0xA0) return value < 0x20 || value >= 0x7F;
  return value == 0x061C || value == 0x200E || value == 0x200F || (value >= 0x2028 && value <= 0x202E) ||
         (value >= 0x2060 && value <= 0x206F) || value == 0xFEFF || (value >= 0xFFF9 && value <= 0xFFFB) ||
         (value >= 0xE0000 && value <= 0xE007F);
}

inline std::string written_out(const Letter& letter) {
  if (letter.value == '\n') return "\\n";
  if (letter.value == '\r') return "\\r";
  if (letter.value == '\t') return "\\t";
  const bool one_byte = !letter.valid || letter.value < 0x80;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(),
                one_byte                ? "\\x%02x"
                : letter.value > 0xFFFF ? "\\U%08x"
                                        : "\\u%04x",
                static_cast<unsigned>(letter.value));
  return text.data();
}

inline std::string written(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Letter letter = first(text);
    if (letter.valid && (!is_control(letter.value) || kept.find(text[0]) != kept.npos))
      out += text.substr(0, letter.bytes);
    else
      out += written_out(letter);
    text.remove_prefix(letter.bytes);
  }
  return out;
}

}  // namespace letters

// Writes text for a place within a line: line ends and tabs are written out too, as \n and \t.
inline std::string visible(std::string_view text) { return letters::written(text, ""); }

// Writes whole texts: line ends and tabs stay.
inline std::string visible_lines(std::string_view text) { return letters::written(text, "\n\t"); }

}  // namespace prun
