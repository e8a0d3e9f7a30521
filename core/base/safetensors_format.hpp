// The safetensors format, rule by rule:
//  1. 8 bytes: length N of the header, little-endian; N <= 100,000,000 and 8 + N <= size of the file.
//  2. N bytes: a JSON object in UTF-8 that starts with '{', padded with spaces at the end.
//  3. Each member but `__metadata__` is a tensor: dtype, shape, data_offsets [begin, end). Fields beyond
//     those are ignored. `__metadata__` maps strings to strings.
//  4. In order of offsets, the first tensor begins at 0 and each one where the last ended.
//  5. end - begin is the product of the shape times the size of the type, in whole bytes.
//  6. The last tensor ends at the end of the file.
//  7. The type is one of the table in safetensors_index.cpp.
//  8. `__metadata__` holds a `format` (for the writer: some loaders refuse files without).
//  9. No name occurs twice in an object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.hpp"
#include "base/safetensors.hpp"

namespace prun::safetensors {

inline constexpr std::uint64_t max_header_bytes = 100'000'000;
inline constexpr std::uint64_t length_bytes = 8;
inline constexpr std::string_view metadata_name = "__metadata__";
inline constexpr auto chunk_bytes = static_cast<std::uint64_t>(checksum_chunk_bytes);
inline constexpr std::size_t checksum_digits = 8;
inline constexpr std::string_view data_key = "prun.crc32c.data", header_key = "prun.crc32c.header";

inline std::uint64_t chunks_of(std::uint64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

// Returns where the digits begin that a header has under a key. Within other texts of a header, quotes have a
// backslash before them.
inline std::size_t place_of(std::string_view header, std::string_view key) {
  const std::string start = detail::concat('"', key, "\":\"");
  const std::size_t found = header.find(start);
  return found == std::string_view::npos ? found : found + start.size();
}

// Makes a name printable: names come from the file and may be long or hold control characters.
inline std::string printable(std::string_view text) {
  constexpr std::size_t longest = 100;
  std::string out(text.substr(0, longest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > longest ? out + "..." : out;
}

// Returns the bits of a tensor, or nothing when the number does not fit. As in the reference, the product
// overflows in the order of the extents, even if a zero comes later.
inline std::optional<std::uint64_t> bits_of_tensor(const std::vector<std::int64_t>& shape, int bits) {
  std::uint64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product)) return std::nullopt;
  }
  if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(bits), &product)) return std::nullopt;
  return product;
}

}  // namespace prun::safetensors
