// Defines what updates of whole tensors are made of: steps that need a matrix whole, or sums over it, between
// ops that are alike for all elements (momentum before them, sgd behind them). If ranks keep parts, unpack
// takes a tensor out of what has been gathered, and pack puts its result back.
#include <algorithm>
#include <vector>

#include "ops/eight_bit_rule.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

// Computes direction = gradient, mixed with the state: `now` parts of it; the state keeps `later` parts.
struct Momentum {
  static constexpr const char* kind = "momentum";
  static constexpr const char* help =
      "g = clip * gradient; direction = g + now * (m - g), its sign where `sign`; m = g + later * (m - g)";
  static constexpr OperandDef operands[] = {{"parameter"},
                                            {"gradient"},
                                            {"m", Access::update},
                                            {"direction", Access::write},
                                            {"clip"},
                                            {"keep"},
                                            {"step", Access::read, true},
                                            {"seed", Access::read, true},
                                            {"scale", Access::update, true}};
  static constexpr AttrDef attrs[] = {real_attr("now", 0.9), real_attr("later", 0.9), real_attr("sign", 0.0)};
  static void rule(OpShape& s) {
    s.like(3, 1);
    s.operand[3].dtype = OpShape::statistics(s.operand[1].dtype);
    keep_blocks_whole(s, 2, 8);
  }
  // It reads nothing of the parameter, which only says which elements these are.
  static void cost(const OpShape& s, OpCost& c) { c.bytes -= s.operand[0].bytes(); }
  static constexpr Effect effect = Effect::update;
};

// Attributes of these names say which matrices an operand is.
constexpr int first_cut = 2, cuts = 3;

struct Orthogonalize {
  static constexpr const char* kind = "orthogonalize";
  static constexpr const char* help =
      "y = of each matrix of x, whose dimensions are `batch`, rows, `columns`, one with the same singular "
      "vectors "
      "and singular values near 1: x / |x|, then `steps` times x = a x + (b x x' + c (x x')^2) x, in bf16 "
      "where "
      "`narrow`; times 0.2 sqrt(longer side) (scale 2), sqrt(max(1, rows / columns)) (scale 1), or 1. Where "
      "`ranks` is not 0, zero but on one rank, which goes by the layer and by where `part` lies";
  static constexpr OperandDef operands[] = {{"x"}, {"part", Access::read, true}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("batch", 0),   int_attr("columns", 1), int_attr("cut1", 0),
                                      int_attr("cut2", 0),    int_attr("cut3", 0),    int_attr("steps", 5),
                                      real_attr("a", 3.4445), real_attr("b", -4.775), real_attr("c", 2.0315),
                                      real_attr("eps", 1e-7), int_attr("scale", 2),   int_attr("narrow", 0),
                                      int_attr("first", 0),   int_attr("ranks", 0)};
  static constexpr bool dealt = true;
  static void rule(OpShape& s) {
    s.like(2, 0);
    s.whole(0, static_cast<int>(s.attrs[0].i), s.operand[0].rank);
  }
  static void cost(const OpShape& s, OpCost& c) {
    const OperandShape& x = s.operand[0];
    const int batch = static_cast<int>(s.attrs[0].i), columns = static_cast<int>(s.attrs[1].i);
    double matrices = 1, wide = 1, inner = 1;
    for (int d = 0; d < batch; ++d) matrices *= x.dims[d].extent;
    for (int d = x.rank - columns; d < x.rank; ++d) wide *= x.dims[d].extent;
    for (int d = batch + 1; d < x.rank - columns; ++d) inner *= x.dims[d].extent;
    std::int64_t begin = 0;
    for (int cut = 0; cut <= cuts; ++cut) {
      const bool last = cut == cuts || s.attrs[first_cut + cut].i == 0;
      const std::int64_t end = last ? x.dims[batch].extent : s.attrs[first_cut + cut].i;
      const double rows = static_cast<double>(end - begin) * inner, least = std::min(rows, wide);
      c.flops += matrices * static_cast<double>(s.attrs[5].i) *
                 (4 * least * rows * wide + 2 * least * least * least);
      begin = end;
      if (last) break;
    }
    if (s.attrs[13].i > 0) c.flops /= s.attrs[13].i;
    c.bytes -= s.operand[1].bytes();
  }
};

// ---------------------------------------------------------------- adafactor

struct FactoredSquares {
  static constexpr const char* kind = "factored_squares";
  static constexpr const char* help =
      "sums of (clip * gradient)^2 over the columns of each matrix, over its rows, and over both";
  static constexpr OperandDef operands[] = {
      {"gradient"}, {"clip"}, {"rows", Access::write}, {"columns", Access::write}, {"total", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("batch", 0), int_attr("columns", 1)};
  static void rule(OpShape& s) {
    const OperandShape x = s.operand[0];
    const int batch = static_cast<int>(s.attrs[0].i), rows = x.rank - static_cast<int>(s.attrs[1].i);
    const DType type = OpShape::statistics(x.dtype);
    std::vector<Dim> columns(x.dims, x.dims + batch);
    columns.insert(columns.end(), x.dims + rows, x.dims + x.rank);
    s.output(2, type, x.dims, rows);
    s.output(3, type, columns.data(), static_cast<int>(columns.size()));
    s.output(4, type, x.dims, batch);
    s.sum(0, batch, x.rank);
  }
};

struct MeanUpdate {
  static constexpr const char* kind = "mean_update";
  static constexpr const char* help = "mean += step^decay * (sum / count - mean), unless keep is 0";
  static constexpr OperandDef operands[] = {{"mean", Access::update}, {"sum"}, {"step"}, {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("decay", -0.8), real_attr("count", 1.0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape&) {}
};

struct FactoredDirection {
  static constexpr const char* kind = "factored_direction";
  static constexpr const char* help =
      "direction = clip * gradient / sqrt(max(eps^2, rows * columns / total)); squares = its sum of squares";
  static constexpr OperandDef operands[] = {{"gradient"},
                                            {"clip"},
                                            {"rows"},
                                            {"columns"},
                                            {"total"},
                                            {"direction", Access::write},
                                            {"squares", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("batch", 0), int_attr("columns", 1), real_attr("eps", 1e-7)};
  static void rule(OpShape& s) {
    s.like(5, 0);
    s.operand[5].dtype = OpShape::statistics(s.operand[0].dtype);
    s.scalar(6, DType::f64);
    s.sum(0, 0, s.operand[0].rank);
  }
};

struct SquareSum {
  static constexpr const char* kind = "square_sum";
  static constexpr const char* help = "sum = sum of x^2, in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::write}};
  static void rule(OpShape& s) {
    s.scalar(1, DType::f64);
    s.sum(0, 0, s.operand[0].rank);
  }
};

// Computes all in fp64.
struct AdafactorFactor {
  static constexpr const char* kind = "adafactor_factor";
  static constexpr const char* help =
      "factor = max(least, rms of the weights) * min(1, 1 / (rate sqrt(step))) / max(1, rms of the direction "
      "/ "
      "limit), for rate = lr * lr_scale";
  static constexpr OperandDef operands[] = {
      {"squares"}, {"weights"}, {"lr"}, {"step"}, {"factor", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("count", 1.0), real_attr("least", 1e-3),
                                      real_attr("limit", 1.0), real_attr("lr_scale", 1.0)};
  static void rule(OpShape& s) { s.scalar(4, DType::f64); }
};

struct ScaleBy {
  static constexpr const char* kind = "scale_by";
  static constexpr const char* help = "y = factor * x, for a factor in fp64 that is rounded to what x is in";
  static constexpr OperandDef operands[] = {{"x"}, {"factor"}, {"y", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

// ---------------------------------------------------------------- out of what ranks keep in parts, and back

// Says where pack leaves room between tensors.
struct Blank {
  static constexpr const char* kind = "blank";
  static constexpr const char* help = "x = 0, of a value that nothing was in";
  static constexpr OperandDef operands[] = {{"x", Access::write}};
  static void rule(OpShape&) {}
};

struct Unpack {
  static constexpr const char* kind = "unpack";
  static constexpr const char* help = "tensor = elements of a flat range, from `offset` on";
  static constexpr OperandDef operands[] = {{"packed"}, {"tensor", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("offset", 0)};
  static void rule(OpShape&) {}
  static void cost(const OpShape& s, OpCost& c) { c.bytes = 2 * static_cast<double>(s.operand[1].bytes()); }
};

struct Pack {
  static constexpr const char* kind = "pack";
  static constexpr const char* help =
      "elements of a flat range, from `offset` on, = tensor: those of them that lie in the rank's part of it";
  static constexpr OperandDef operands[] = {{"tensor"}, {"packed", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("offset", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape&) {}
  static void cost(const OpShape& s, OpCost& c) {
    c.bytes = 2 * static_cast<double>(std::min(s.operand[0].bytes(), s.operand[1].bytes()));
  }
};

}  // namespace

std::vector<OpDef> whole_update_ops() {
  return {op_def<Momentum>(),
          op_def<Orthogonalize>(),
          op_def<FactoredSquares>(),
          op_def<MeanUpdate>(),
          op_def<FactoredDirection>(),
          op_def<SquareSum>(),
          op_def<AdafactorFactor>(),
          op_def<ScaleBy>(),
          op_def<Blank>(),
          op_def<Unpack>(),
          op_def<Pack>()};
}

}  // namespace prun
