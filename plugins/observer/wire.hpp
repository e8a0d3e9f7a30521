// Writes messages in the wire format of protocol buffers, as far as logs need it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace prun::wire {

enum : std::uint32_t { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

// Writes little-endian, whatever this machine is.
template <class Word>
void append_fixed(std::string& out, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) out += static_cast<char>(word >> (8 * i) & 0xff);
}

inline void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

inline void append_key(std::string& out, std::uint32_t field, std::uint32_t type) {
  append_varint(out, field << 3 | type);
}

inline void append_number(std::string& out, std::uint32_t field, std::int64_t value) {
  append_key(out, field, varint);
  append_varint(out, static_cast<std::uint64_t>(value));
}

inline void append_bytes(std::string& out, std::uint32_t field, std::string_view content) {
  append_key(out, field, bytes);
  append_varint(out, content.size());
  out += content;
}

}  // namespace prun::wire
