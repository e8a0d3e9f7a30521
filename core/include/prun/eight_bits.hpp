// SPDX-License-Identifier: Apache-2.0
// Moments in 8 bits: blocks of neighbouring elements of the whole tensor, each with an fp32 scale that is a
// power of two. A signed moment has a sign, 4 exponent and 3 mantissa bits, a non-negative one 5 exponent and
// 3 mantissa bits; both are relative to the scale, and 0 is 0. Rounding is stochastic, as for state in bf16,
// since a step changes a moment by less than an eighth; a non-negative moment rounds to 0 only from 0, since
// updates are divided by it.
#pragma once

#include <cstdint>

namespace prun {

// Shards begin and end at multiples of the block; tensors of other lengths, or with fewer elements than
// eight_bit_least, are not kept in 8 bits.
inline constexpr std::int64_t eight_bit_block = 128, eight_bit_least = 4096;

}  // namespace prun
