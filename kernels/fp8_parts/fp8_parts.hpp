// SPDX-License-Identifier: Apache-2.0
// Defines the ops by which ranks make codes of squares (prun/fp8_squares.hpp) of a matrix that lies in a flat
// range of which each has a part: each finds the largest magnitudes in its part, all take the largest of
// these, and each writes the codes in its part and the scales that lie there, as codes by rows lie.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

// The matrix begins at element `first` of the range, which has `elements`; its squares, row by row, begin at
// element `place` of the peaks.
inline constexpr AttrDef part_attrs[] = {int_attr("first", 0), int_attr("rows", 128),
                                         int_attr("columns", 128), int_attr("place", 0),
                                         int_attr("elements", 0)};

struct PeakFp8Squares {
  static constexpr const char* kind = "peak_fp8_squares";
  static constexpr const char* help =
      "peaks = the larger of peaks and the largest magnitude in each square of 128 x 128 of a matrix in a "
      "flat range, of what this part of it has; infinite where one is not finite";
  static constexpr OperandDef operands[] = {{"x"}, {"peaks", Access::update}};
  static constexpr const AttrDef (&attrs)[5] = part_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<PeakFp8Squares> s);
  static void cost(ShapeOf<PeakFp8Squares> s, OpCost& c);
};

struct EncodeFp8Part {
  static constexpr const char* kind = "encode_fp8_part";
  static constexpr const char* help =
      "codes in e4m3 of a matrix in a flat range, by the peaks of its squares of 128 x 128, and behind them "
      "the scales, of what this part of the range has";
  static constexpr OperandDef operands[] = {{"x"}, {"peaks"}, {"codes", Access::update}};
  static constexpr const AttrDef (&attrs)[5] = part_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<EncodeFp8Part> s);
  static void cost(ShapeOf<EncodeFp8Part> s, OpCost& c);
};

}  // namespace prun::ops
