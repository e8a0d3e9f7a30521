// Computes SHA-256 (FIPS 180-4) for the run record, which states which bytes a plugin, a recipe or a
// checkpoint consisted of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace prun {

// Digests pieces of any size; hex() ends it.
class Sha256 {
 public:
  // `in_hardware` says that the processor's instructions may be used, if it has any.
  explicit Sha256(bool in_hardware = true) : in_hardware_(in_hardware) {}

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }

  // Returns the digest in 64 lower-case digits. Nothing may be added afterwards.
  std::string hex();

 private:
  static constexpr std::size_t block_size = 64;

  void absorb(const std::byte* block);
  void pad();

  bool in_hardware_;
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_size> pending_ = {};
  std::uint64_t length_ = 0;  // number of all bytes
};

std::string sha256_hex(std::string_view text);

// Digests an open file from its first byte to its last, wherever its position is. `name` is for the error.
std::string sha256_of_file(int fd, std::string_view name);

}  // namespace prun
