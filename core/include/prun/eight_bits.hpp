// SPDX-License-Identifier: Apache-2.0
// Moments in 8 bits: blocks of neighbouring elements of the whole tensor, with a scale each, a power of two
// in fp32. A signed one has a sign, 4 bits of exponent and 3 of mantissa, one that is never negative 5 and 3;
// both are relative to the scale, and 0 is 0. They are rounded by chance, as what is kept in bf16 is, since a
// step changes a moment by less than an eighth; what is never negative rounds to no 0 but from 0, since steps
// are divided by it.
#pragma once

#include <cstdint>

namespace prun {

// Ranks' parts begin and end at multiples of the block; tensors of other lengths, or of few elements, are not
// kept in eight bits.
inline constexpr std::int64_t eight_bit_block = 128, eight_bit_least = 4096;

}  // namespace prun
