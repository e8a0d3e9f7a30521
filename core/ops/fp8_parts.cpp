// Defines the ops by which ranks make codes of squares (prun/fp8_squares.hpp) of a matrix that lies in a flat
// range of which each has a part: each finds the largest magnitudes in its part, all take the largest of
// these, and each writes the codes in its part and the scales that lie there, as codes by rows lie.
#include <vector>

#include "base/require.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

// The matrix begins at element `first` of the range, which has `elements`; its squares, row by row, begin at
// element `place` of the peaks.
constexpr AttrDef part_attrs[] = {int_attr("first", 0), int_attr("rows", 128), int_attr("columns", 128),
                                  int_attr("place", 0), int_attr("elements", 0)};

std::int64_t blocks_in(std::int64_t extent) { return (extent + fp8_block - 1) / fp8_block; }

void check_part(const OpShape& s, const char* op) {
  const OperandShape &x = s.operand[0], &peaks = s.operand[1];
  const std::int64_t first = s.attrs[0].i, rows = s.attrs[1].i, columns = s.attrs[2].i, place = s.attrs[3].i;
  require(is_float(x.dtype) && x.rank == 1, op, " takes numbers of a flat range");
  require(peaks.dtype == DType::f32 && peaks.rank == 1, op, ": peaks are in fp32, in one dimension");
  require(first >= 0 && first % fp8_block == 0 && x.dims[0].extent % fp8_block == 0, op,
          ": the matrix and the parts begin at multiples of ", fp8_block);
  require(rows > 0 && columns >= fp8_block && rows % fp8_grain == 0 && columns % fp8_grain == 0, op, ": ",
          rows, " rows of ", columns, " do not come in blocks");
  require(place >= 0 && place + blocks_in(rows) * blocks_in(columns) <= peaks.dims[0].extent, op,
          ": there is no place ", place);
}

// Counts what a part has of the matrix on average.
void count_part(const OpShape& s, double reads, OpCost& c) {
  const double all = static_cast<double>(s.attrs[4].i), own = static_cast<double>(s.operand[0].elements());
  const double share = all > 0 ? own / all : 1;
  c.bytes = reads * share * static_cast<double>(s.attrs[1].i) * static_cast<double>(s.attrs[2].i);
}

struct PeakFp8Squares {
  static constexpr const char* kind = "peak_fp8_squares";
  static constexpr const char* help =
      "peaks = the larger of peaks and the largest magnitude in each square of 128 x 128 of a matrix in a "
      "flat range, of what this part of it has; infinite where one is not finite";
  static constexpr OperandDef operands[] = {{"x"}, {"peaks", Access::update}};
  static constexpr const AttrDef (&attrs)[5] = part_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_part(s, kind);
    s.max(0, 0, 1);
    s.whole(1, 0, 1);
    s.pass_maximum({1});
  }
  static void cost(const OpShape& s, OpCost& c) {
    count_part(s, static_cast<double>(size_of(s.operand[0].dtype)), c);
  }
};

struct EncodeFp8Part {
  static constexpr const char* kind = "encode_fp8_part";
  static constexpr const char* help =
      "codes in e4m3 of a matrix in a flat range, by the peaks of its squares of 128 x 128, and behind them "
      "the scales, of what this part of the range has";
  static constexpr OperandDef operands[] = {{"x"}, {"peaks"}, {"codes", Access::update}};
  static constexpr const AttrDef (&attrs)[5] = part_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_part(s, kind);
    const OperandShape &x = s.operand[0], &codes = s.operand[2];
    require(codes.dtype == DType::u8 && codes.rank == 1 && codes.dims[0] == x.dims[0],
            "encode_fp8_part writes a byte for each element of the range");
    s.whole(1, 0, 1);
  }
  static void cost(const OpShape& s, OpCost& c) {
    count_part(s, static_cast<double>(size_of(s.operand[0].dtype)) + 1, c);
  }
};

}  // namespace

std::vector<OpDef> fp8_parts_ops() { return {op_def<PeakFp8Squares>(), op_def<EncodeFp8Part>()}; }

}  // namespace prun
