#include <utility>
#include <vector>

#include "base/require.hpp"
#include "prun/block_codes.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/ops/fp8_squares.hpp"

namespace prun::ops {

void EncodeFp8Squares::rule(RuleOf<EncodeFp8Squares> s) {
  const OperandShape& x = s["x"];
  const int in = static_cast<int>(s.integer("in_dims"));
  const bool by_rows = s.integer("by_rows") != 0;
  const OperandShape codes = fp8_squares_of(x, in, by_rows);
  require(codes.present, "encode_fp8_squares takes numbers in rows and columns of a multiple of ", fp8_grain,
          ", which codes run along for at least ", fp8_block);
  s.output("codes", codes.dtype, codes.dims, codes.rank);
  for (int d = 0; d < x.rank; ++d)
    if (!has_dim(codes, x.dims[d].name)) s.whole(x.dims[d].name);
}

std::int64_t TurnFp8Squares::extent_of(const OperandShape& codes, std::int64_t dims) {
  std::int64_t extent = 1;
  for (auto d = codes.rank - dims; d < codes.rank; ++d) extent *= codes.dims[d].extent;
  return extent;
}

bool TurnFp8Squares::has_codes(const OperandShape& codes, std::int64_t along, std::int64_t across) {
  return codes.dtype == DType::u8 &&
         codes.elements() == along * (across + Fp8Squares{along, across}.across());
}

void TurnFp8Squares::rule(RuleOf<TurnFp8Squares> s) {
  const OperandShape &by_rows = s["rows"], &by_columns = s["columns"];
  const std::int64_t in = s.integer("along_rows"), out = s.integer("along_columns");
  require(by_columns.present && in >= 1 && in < by_rows.rank && out >= 1 && out < by_columns.rank, kind,
          ": along_rows ", in, " and along_columns ", out, " do not fit the operands");
  const std::int64_t columns = extent_of(by_rows, in), rows = extent_of(by_columns, out);
  require(has_codes(by_rows, columns, rows) && has_codes(by_columns, rows, columns), kind,
          " takes and makes codes of the squares of one matrix");
  for (const auto& [one, other] : {std::pair(&by_rows, &by_columns), {&by_columns, &by_rows}})
    for (int d = 0; d < one->rank; ++d)
      if (!has_dim(*other, one->dims[d].name)) s.whole(one->dims[d].name);
}

void EncodeFp8SquareRows::rule(RuleOf<EncodeFp8SquareRows> s) {
  OperandShape x = s["x"];
  require(is_float(x.dtype) && x.rank > 1 && x.dims[x.rank - 1].extent % fp8_block == 0 &&
              x.dims[x.rank - 2].extent % fp8_block == 0,
          kind, " takes numbers whose last two dimensions come in blocks of ", fp8_block);
  x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / fp8_block * code_block_bytes(8);
  s.output("codes", DType::u8, x.dims, x.rank);
  s.whole("x", x.rank - 1, x.rank);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> fp8_squares_ops() {
  using namespace ops;
  return {op_def<EncodeFp8Squares>(), op_def<TurnFp8Squares>(), op_def<EncodeFp8SquareRows>()};
}

}  // namespace prun
