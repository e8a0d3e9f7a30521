#include "base/crc32c.hpp"

#include <array>
#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace prun {
namespace {

// tables[k][b] says what byte b does to the checksum once k more bytes have followed it.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  constexpr std::uint32_t polynomial = 0x82f63b78;
  Tables tables = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? polynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t last = tables[k - 1][byte];
      tables[k][byte] = last >> 8 ^ tables[0][last & 0xff];
    }
  return tables;
}

constexpr Tables tables = make_tables();

std::uint64_t load_word(const std::byte* data) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8; ++i) word |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t in_hardware(std::span<const std::byte> bytes,
                                                            std::uint32_t before) {
  std::uint64_t state = static_cast<std::uint32_t>(~before);
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (const std::byte byte : bytes) narrow = _mm_crc32_u8(narrow, std::to_integer<std::uint8_t>(byte));
  return ~narrow;
}
#endif

constexpr std::string_view mark = " crc32c ";

}  // namespace

std::uint32_t crc32c_in_software(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t state = ~before;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const std::uint64_t word = load_word(bytes.data()) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= tables[7 - i][word >> (8 * i) & 0xff];
  }
  for (const std::byte byte : bytes)
    state = state >> 8 ^ tables[0][(state ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return in_hardware(bytes, before);
#endif
  return crc32c_in_software(bytes, before);
}

std::string crc32c_text(std::uint32_t checksum) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", checksum);
  return digits;
}

std::string sealed_line(std::string_view text) {
  return std::string(text) + std::string(mark) + crc32c_text(crc32c(std::as_bytes(std::span(text)))) + "\n";
}

std::optional<std::string> unsealed(std::string_view line) {
  const std::string_view text = line.substr(0, line.rfind(mark));
  if (sealed_line(text) != line) return std::nullopt;
  return std::string(text);
}

}  // namespace prun
