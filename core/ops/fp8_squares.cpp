// Defines the op that makes of a matrix squares of fp8, as codes that products take (prun/fp8_squares.hpp).
#include "prun/fp8_squares.hpp"

#include <vector>

#include "base/require.hpp"
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

}  // namespace

std::vector<OpDef> fp8_squares_ops() { return {op_def<EncodeFp8Squares>()}; }

}  // namespace prun
