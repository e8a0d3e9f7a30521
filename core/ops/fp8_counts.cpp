// Defines the ops that count what becomes of a factor of products in fp8 (prun/fp8_blocks.hpp), in steps
// where `on` is not 0: how many of its numbers become zero, and which scales its blocks have. Blocks that
// have a number which is not finite are left out.
#include <vector>

#include "base/require.hpp"
#include "prun/fp8_blocks.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

// in_dims says how many of x's last dimensions are a row of the matrix; blocks is one of Fp8Blocks; counts of
// a layer are in row place + layer; weight is the number of the parameter that x is multiplied with, or less
// than 0.
constexpr AttrDef count_attrs[] = {int_attr("in_dims", 1),   int_attr("fp8", 1),    int_attr("fp8_from", 0),
                                   int_attr("fp8_until", 0), int_attr("blocks", 0), int_attr("place", 0),
                                   int_attr("weight", -1)};

void check_counts(const OpShape& s, const char* op) {
  const OperandShape &x = s.operand[0], &on = s.operand[1], &counts = s.operand[2];
  const std::int64_t in = s.attrs[0].i, blocks = s.attrs[4].i, place = s.attrs[5].i;
  require(is_float(x.dtype) && in >= 1 && in < x.rank, op, ": in_dims ", in, " does not fit x");
  require(blocks >= 0 && blocks <= static_cast<std::int64_t>(Fp8Blocks::squares), op, ": no blocks ", blocks);
  require(on.rank == 0 && on.dtype == DType::f64, op, ": `on` is a number in fp64");
  require(counts.rank == 2 && counts.dtype == DType::f64 && counts.dims[1].extent == 3, op,
          " counts into fp64 [place, 3]");
  require(place >= 0 && place < counts.dims[0].extent, op, ": there is no place ", place);
}

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
  static void rule(OpShape& s) {
    check_counts(s, kind);
    s.sum(0, 0, s.operand[0].rank);
    s.whole(2, 0, 2);
  }
  // In most steps nothing is read.
  static void cost(const OpShape&, OpCost& c) { c.bytes = 0; }
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
  static void rule(OpShape& s) {
    check_counts(s, kind);
    s.max(0, 0, s.operand[0].rank);
    s.whole(2, 0, 2);
    s.pass_maximum({2});
  }
  static void cost(const OpShape&, OpCost& c) { c.bytes = 0; }
};

}  // namespace

std::vector<OpDef> fp8_counts_ops() { return {op_def<CountFp8Codes>(), op_def<PeakFp8Scales>()}; }

}  // namespace prun
