// SPDX-License-Identifier: Apache-2.0
// Stores a float as a bf16 and its low 16 bits, as precision.master = "split" does for weights. The bf16 is
// the float rounded by (bits + 0x8000) >> 16; the top bit of the low half tells whether that rounded up. So
// both together restore every bit, which rounding ties to even would not allow. Master weights that are not
// split are rounded alike.
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
