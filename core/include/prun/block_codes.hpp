// SPDX-License-Identifier: Apache-2.0
// Quantized data of 8, 4 or 1 bit per element, in blocks of neighbouring elements of the whole tensor. A
// block is an fp32 scale followed by codes in two's complement, the first element's in the lowest bits. An
// element is its code times the scale, and the largest code stands for the block's largest magnitude; codes
// are rounded to nearest, so that an element is at most half a scale off. A code of one bit is a sign, set
// for numbers below 0, and its scale is the block's root mean square. A block with a non-finite number is NaN
// throughout.
//
// A code may also be an e4m3 number (prun/fp8_blocks.hpp): 8 bits, 3 of them mantissa, with the smallest
// power of two as its scale by which the block's largest magnitude is at most 448. An element is off by at
// most a sixteenth of itself or, if it is very small, by a 1024th of the scale.
#pragma once

#include <cstdint>

namespace prun {

// Shards begin and end at multiples of the block. Tensors of other lengths, or with fewer elements than
// code_least, are sent unquantized.
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
