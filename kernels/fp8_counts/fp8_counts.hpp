// SPDX-License-Identifier: Apache-2.0
// Defines the ops that count what becomes of a factor of products in fp8 (prun/fp8_blocks.hpp), in steps
// where `on` is not 0: how many of its numbers become zero, and which scales its blocks have. Blocks that
// have a number which is not finite are left out.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

// in_dims says how many of x's last dimensions are a row of the matrix; blocks is one of Fp8Blocks; counts of
// a layer are in row place + layer; weight is the number of the parameter that x is multiplied with, or less
// than 0.
inline constexpr AttrDef count_attrs[] = {
    int_attr("in_dims", 1), int_attr("fp8", 1),   int_attr("fp8_from", 0), int_attr("fp8_until", 0),
    int_attr("blocks", 0),  int_attr("place", 0), int_attr("weight", -1)};

struct CountFp8Codes {
  static constexpr const char* kind = "count_fp8_codes";
  static constexpr bool any_order = true;
  static constexpr const char* help =
      "counts += of x's numbers in fp8, those that are not zero, of these those whose code is zero, and "
      "those "
      "whose code is subnormal";
  static constexpr OperandDef operands[] = {{"x"}, {"on"}, {"counts", Access::update}};
  static constexpr const AttrDef (&attrs)[7] = count_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<CountFp8Codes> s);
  static void cost(ShapeOf<CountFp8Codes>, OpCost& c);
};

struct PeakFp8Scales {
  static constexpr const char* kind = "peak_fp8_scales";
  static constexpr bool any_order = true;
  static constexpr const char* help =
      "peaks = the larger of peaks and, of x in fp8, the largest magnitude, the largest exponent of a scale, "
      "as "
      "fp32 has it, and 255 - the smallest; blocks of zeros have none";
  static constexpr OperandDef operands[] = {{"x"}, {"on"}, {"peaks", Access::update}};
  static constexpr const AttrDef (&attrs)[7] = count_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<PeakFp8Scales> s);
  static void cost(ShapeOf<PeakFp8Scales>, OpCost& c);
};

}  // namespace prun::ops
