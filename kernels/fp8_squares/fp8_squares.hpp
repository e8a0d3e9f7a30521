// SPDX-License-Identifier: Apache-2.0
// Defines the ops that make of a matrix squares of fp8, as codes that products take (prun/fp8_squares.hpp),
// and that turn such codes, since a square has one scale in either order.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct EncodeFp8Squares {
  static constexpr const char* kind = "encode_fp8_squares";
  static constexpr const char* help =
      "x in squares of 128 x 128 as codes in e4m3 with a scale each, a power of two; by columns or, where "
      "by_rows "
      "is 1, by rows";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("in_dims", 1), later(int_attr("by_rows", 0))};
  static void rule(RuleOf<EncodeFp8Squares> s);
};

// The last `along` dimensions of either are what a row, or a column, of the matrix runs along.
struct TurnFp8Squares {
  static constexpr const char* kind = "turn_fp8_squares";
  static constexpr const char* help = "codes of squares by rows of a matrix as codes by its columns";
  static constexpr OperandDef operands[] = {{"rows"}, {"columns", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("along_rows", 1), int_attr("along_columns", 1)};
  static std::int64_t extent_of(const OperandShape& codes, std::int64_t dims);
  static bool has_codes(const OperandShape& codes, std::int64_t along, std::int64_t across);
  static void rule(RuleOf<TurnFp8Squares> s);
};

// Makes what travels between ranks that share out rows, in whole squares: a block stands by itself.
struct EncodeFp8SquareRows {
  static constexpr const char* kind = "encode_fp8_square_rows";
  static constexpr const char* help =
      "x in blocks of 128 neighbours as encode_fp8 makes them, each with the scale of its square of 128 x "
      "128";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static void rule(RuleOf<EncodeFp8SquareRows> s);
};

}  // namespace prun::ops
