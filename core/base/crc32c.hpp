// CRC-32C (Castagnoli), for what lies on a disk: whatever changes up to 32 consecutive bits, one byte for
// instance, is found for certain, anything else but for one case in four thousand million. Common processors
// compute it themselves, at several GB/s; so do other tools, should one want to check prun's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace prun {

// Returns the checksum with bytes added after those of which `before` is the checksum.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
// Computes the same without the processor's help.
std::uint32_t crc32c_in_software(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Returns eight lower-case hexadecimal digits.
std::string crc32c_text(std::uint32_t checksum);

// A line that shows when any of its bytes has been changed: the text and its checksum.
std::string sealed_line(std::string_view text);
// The text of such a line; nothing when it is not as it was written.
std::optional<std::string> unsealed(std::string_view line);

}  // namespace prun
