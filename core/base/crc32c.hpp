// Computes CRC-32C (Castagnoli), for data on a disk: any change of up to 32 consecutive bits, one byte for
// instance, is found for certain, any other but for one case in four thousand million. Common processors
// compute it themselves, at several GB/s; so do other tools, if they are to check prun's files.
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

// Returns the checksum as eight lower-case hexadecimal digits.
std::string crc32c_text(std::uint32_t checksum);

// Returns a line that shows when any of its bytes has been changed: the text and its checksum.
std::string sealed_line(std::string_view text);
// Returns the text of such a line, or nothing if it is not as it was written.
std::optional<std::string> unsealed(std::string_view line);

}  // namespace prun
