// Defines the ops that make of a matrix squares of fp8, as codes that products take (prun/fp8_squares.hpp),
// and that turn such codes, since a square has one scale in either order.
#include "prun/fp8_squares.hpp"

#include <utility>
#include <vector>

#include "base/require.hpp"
#include "prun/block_codes.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct EncodeFp8Squares {
  static constexpr const char* kind = "encode_fp8_squares";
  static constexpr const char* help =
      "x in squares of 128 x 128 as codes in e4m3 with a scale each, a power of two; by columns or, where "
      "by_rows "
      "is 1, by rows";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("in_dims", 1), later(int_attr("by_rows", 0))};
  static void rule(OpShape& s) {
    const OperandShape& x = s.operand[0];
    const int in = static_cast<int>(s.attrs[0].i);
    const bool by_rows = s.attrs[1].i != 0;
    const OperandShape codes = fp8_squares_of(x, in, by_rows);
    require(codes.present, "encode_fp8_squares takes numbers in rows and columns of a multiple of ",
            fp8_grain, ", which codes run along for at least ", fp8_block);
    s.output(1, codes.dtype, codes.dims, codes.rank);
    for (int d = 0; d < x.rank; ++d)
      if (!has_dim(codes, x.dims[d].name)) s.whole(x.dims[d].name);
  }
};

// The last `along` dimensions of either are what a row, or a column, of the matrix runs along.
struct TurnFp8Squares {
  static constexpr const char* kind = "turn_fp8_squares";
  static constexpr const char* help = "codes of squares by rows of a matrix as codes by its columns";
  static constexpr OperandDef operands[] = {{"rows"}, {"columns", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("along_rows", 1), int_attr("along_columns", 1)};
  static std::int64_t extent_of(const OperandShape& codes, std::int64_t dims) {
    std::int64_t extent = 1;
    for (auto d = codes.rank - dims; d < codes.rank; ++d) extent *= codes.dims[d].extent;
    return extent;
  }
  static bool has_codes(const OperandShape& codes, std::int64_t along, std::int64_t across) {
    return codes.dtype == DType::u8 &&
           codes.elements() == along * (across + Fp8Squares{along, across}.across());
  }
  static void rule(OpShape& s) {
    const OperandShape &by_rows = s.operand[0], &by_columns = s.operand[1];
    const std::int64_t in = s.attrs[0].i, out = s.attrs[1].i;
    require(by_columns.present && in >= 1 && in < by_rows.rank && out >= 1 && out < by_columns.rank, kind,
            ": along_rows ", in, " and along_columns ", out, " do not fit the operands");
    const std::int64_t columns = extent_of(by_rows, in), rows = extent_of(by_columns, out);
    require(has_codes(by_rows, columns, rows) && has_codes(by_columns, rows, columns), kind,
            " takes and makes codes of the squares of one matrix");
    for (const auto& [one, other] : {std::pair(&by_rows, &by_columns), {&by_columns, &by_rows}})
      for (int d = 0; d < one->rank; ++d)
        if (!has_dim(*other, one->dims[d].name)) s.whole(one->dims[d].name);
  }
};

// Makes what travels between ranks that share out rows, in whole squares: a block stands by itself.
struct EncodeFp8SquareRows {
  static constexpr const char* kind = "encode_fp8_square_rows";
  static constexpr const char* help =
      "x in blocks of 128 neighbours as encode_fp8 makes them, each with the scale of its square of 128 x "
      "128";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static void rule(OpShape& s) {
    OperandShape x = s.operand[0];
    require(is_float(x.dtype) && x.rank > 1 && x.dims[x.rank - 1].extent % fp8_block == 0 &&
                x.dims[x.rank - 2].extent % fp8_block == 0,
            kind, " takes numbers whose last two dimensions come in blocks of ", fp8_block);
    x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / fp8_block * code_block_bytes(8);
    s.output(1, DType::u8, x.dims, x.rank);
    s.whole(0, x.rank - 1, x.rank);
  }
};

}  // namespace

std::vector<OpDef> fp8_squares_ops() {
  return {op_def<EncodeFp8Squares>(), op_def<TurnFp8Squares>(), op_def<EncodeFp8SquareRows>()};
}

}  // namespace prun
