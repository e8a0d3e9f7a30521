// SPDX-License-Identifier: Apache-2.0
// Defines ops on numbers that travel between ranks as codes, in blocks of 128 neighbours that have a scale
// each (prun/block_codes.hpp): all ranks that decode them get the same numbers.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef bits_attr[] = {int_attr("bits", 8)};

inline constexpr AttrDef decode_attrs[] = {int_attr("bits", 8), int_attr("to", 1)};

struct Encode {
  static constexpr const char* kind = "encode";
  static constexpr const char* help =
      "x in blocks of 128 neighbours, each a scale in fp32 and codes of `bits` bits";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = bits_attr;
  static void rule(RuleOf<Encode> s);
};

struct EncodeOnward {
  static constexpr const char* kind = "encode_onward";
  static constexpr const char* help =
      "x + error, encoded; error = what the codes leave out of that, to come with the next numbers, unless "
      "keep is 0";
  static constexpr OperandDef operands[] = {
      {"x"}, {"error", Access::update}, {"keep"}, {"codes", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = bits_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<EncodeOnward> s);
};

struct Decode {
  static constexpr const char* kind = "decode";
  static constexpr const char* help =
      "the numbers that `codes` stand for (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = decode_attrs;
  static void rule(RuleOf<Decode> s);
};

struct EncodeFp8 {
  static constexpr const char* kind = "encode_fp8";
  static constexpr const char* help =
      "x in blocks of 128 neighbours, each a scale, a power of two, in fp32 and codes in e4m3";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static void rule(RuleOf<EncodeFp8> s);
};

struct DecodeFp8 {
  static constexpr const char* kind = "decode_fp8";
  static constexpr const char* help =
      "the numbers that `codes` in e4m3 stand for (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("to", 1)};
  static void rule(RuleOf<DecodeFp8> s);
};

// Sums rank by rank, so that the sum is the same wherever it is taken.
struct SumDecoded {
  static constexpr const char* kind = "sum_decoded";
  static constexpr const char* help =
      "the sum over the first dimension, in its order, of what `codes` stand for";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = decode_attrs;
  static void rule(RuleOf<SumDecoded> s);
};

// Exchanges summands: what reduce_scatter would add up on the way arrives as it was sent.
struct SwapSummands {
  static constexpr const char* kind = "swap_summands";
  static constexpr const char* help =
      "each rank's summand of this coordinate's block: `blocks` as they are sent to it";
  static constexpr OperandDef operands[] = {{"blocks"}, {"summands", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0)};
  static constexpr OpExchange exchange{CommKind::all_to_all};
  static void rule(RuleOf<SwapSummands> s);
};

}  // namespace prun::ops
