#include <vector>

#include "base/require.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/ops/fp8_parts.hpp"

namespace prun::ops {
namespace {

std::int64_t blocks_in(std::int64_t extent) { return (extent + fp8_block - 1) / fp8_block; }

template <class Op>
void check_part(const ShapeOf<Op>& s) {
  const char* const op = Op::kind;
  const OperandShape &x = s["x"], &peaks = s["peaks"];
  const std::int64_t first = s.integer("first"), rows = s.integer("rows"), columns = s.integer("columns"),
                     place = s.integer("place");
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
template <class Op>
void count_part(const ShapeOf<Op>& s, double reads, OpCost& c) {
  const double all = static_cast<double>(s.integer("elements")), own = static_cast<double>(s["x"].elements());
  const double share = all > 0 ? own / all : 1;
  c.bytes =
      reads * share * static_cast<double>(s.integer("rows")) * static_cast<double>(s.integer("columns"));
}

}  // namespace

void PeakFp8Squares::rule(RuleOf<PeakFp8Squares> s) {
  check_part(s);
  s.max("x", 0, 1);
  s.whole("peaks", 0, 1);
  s.pass_maximum({"peaks"});
}

void PeakFp8Squares::cost(ShapeOf<PeakFp8Squares> s, OpCost& c) {
  count_part(s, static_cast<double>(size_of(s["x"].dtype)), c);
}

void EncodeFp8Part::rule(RuleOf<EncodeFp8Part> s) {
  check_part(s);
  const OperandShape &x = s["x"], &codes = s["codes"];
  require(codes.dtype == DType::u8 && codes.rank == 1 && codes.dims[0] == x.dims[0],
          "encode_fp8_part writes a byte for each element of the range");
  s.whole("peaks", 0, 1);
}

void EncodeFp8Part::cost(ShapeOf<EncodeFp8Part> s, OpCost& c) {
  count_part(s, static_cast<double>(size_of(s["x"].dtype)) + 1, c);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> fp8_parts_ops() {
  using namespace ops;
  return {op_def<PeakFp8Squares>(), op_def<EncodeFp8Part>()};
}

}  // namespace prun
