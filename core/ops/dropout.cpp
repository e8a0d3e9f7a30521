// The op dropout zeroes elements with probability p and scales the rest by 1 / (1 - p). Which elements
// depends on (seed, layer, stream, sample number, position, channel) alone, so that every layout, and a
// resumed run, drops the same ones. Its gradient is the same op.
#include <vector>

#include "base/require.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

struct Dropout {
  static constexpr const char* kind = "dropout";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "zeroes elements by a counter-based draw";
  static constexpr OperandDef operands[] = {
      {"x"}, {"samples"}, {"seed"}, {"y", Access::write}, positions_operand};
  // `stream` distinguishes the dropouts of one segment.
  static constexpr AttrDef attrs[] = {real_attr("p", 0.0), int_attr("stream", 0)};
  static constexpr const char* noise = "p";
  static void rule(OpShape& s) {
    require(s.operand[0].rank >= 3 && s.operand[1].rank == 1 && s.operand[1].dtype == DType::i64,
            "dropout takes x [batch, seq, width] and i64 samples [batch]; the width may be of several "
            "dimensions");
    require(s.attrs[0].f >= 0 && s.attrs[0].f < 1, "dropout: p lies in [0, 1)");
    check_positions(s, 0, 4, kind);
    s.like(3, 0);
    s.whole(0, 3, s.operand[0].rank);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "dropout", {g.arrived(3), g.operand(1), g.operand(2), g.operand(4)},
            {{"p", g.attr("p")}, {"stream", g.attr("stream")}});
  }
};

}  // namespace

std::vector<OpDef> dropout_ops() { return {op_def<Dropout>()}; }

}  // namespace prun
