// SPDX-License-Identifier: Apache-2.0
// Numbers in codes of 8, 4 or 1 bit: blocks of neighbouring elements of the whole tensor. A block is its
// scale, in fp32, and behind it the codes, two's complement, the first element's in the lowest bits. The
// largest code stands for the block's largest magnitude, each code for itself times the scale; a code is
// rounded to nearest, so that an element is at most half a scale off. A code of one bit is a sign, set where
// the number is below 0, of a scale that is the root of the block's mean square. A block that has a number
// which is not finite is NaN throughout.
//
// A code may also be a number in e4m3 (prun/fp8_blocks.hpp): 8 bits, 3 of them behind the point, of a scale
// that is the smallest power of two by which the block's largest magnitude is at most 448. An element is off
// by a sixteenth of itself at most or, of the smallest, by a 1024th of the scale.
#pragma once

#include <cstdint>

namespace prun {

// Parts of ranks begin and end at multiples of the block. Tensors of other lengths, or of fewer elements than
// the least, travel as they are.
inline constexpr std::int64_t code_block = 128, code_least = 4096;

enum class Codes : std::uint8_t { int8, int4, sign, e4m3 };
// Returns the codes that have 8, 4 or 1 bit.
constexpr Codes codes_of_bits(std::int64_t bits) {
  return bits == 8 ? Codes::int8 : bits == 4 ? Codes::int4 : Codes::sign;
}
constexpr int bits_of(Codes codes) { return codes == Codes::int4 ? 4 : codes == Codes::sign ? 1 : 8; }

constexpr std::int64_t code_block_bytes(std::int64_t bits) { return 4 + code_block * bits / 8; }
constexpr int largest_code(std::int64_t bits) { return (1 << (bits - 1)) - 1; }

}  // namespace prun
