// SPDX-License-Identifier: Apache-2.0
// Keeps a float as a bf16 and its low 16 bits: weights are stored so with precision.master = "split". The
// bf16 is the float rounded by (bits + 0x8000) >> 16; where that went up, the top bit of the lower half says
// so. So both together give every bit back, which rounding ties to even would not allow. A master copy that
// is kept whole is rounded alike.
#pragma once

#include "prun/types.hpp"

namespace prun {

// Returns the bits of the float; for a NaN, those of a float that is still NaN once it is rounded.
constexpr std::uint32_t master_bits(float value) {
  return value != value ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value);
}

constexpr std::uint16_t rounded_half(float value) {
  return static_cast<std::uint16_t>((master_bits(value) + 0x8000u) >> 16);
}
constexpr std::uint16_t low_half(float value) { return static_cast<std::uint16_t>(master_bits(value)); }

constexpr float joined_halves(std::uint16_t rounded, std::uint16_t low) {
  const auto high = static_cast<std::uint16_t>(rounded - (low >> 15));
  return std::bit_cast<float>(static_cast<std::uint32_t>(high) << 16 | low);
}

}  // namespace prun
