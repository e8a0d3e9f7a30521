// SPDX-License-Identifier: Apache-2.0
// Defines what updates of whole tensors are made of: steps that need a matrix whole, or sums over it, between
// ops that are alike for all elements (momentum before them, sgd behind them). If ranks keep parts, unpack
// takes a tensor out of what has been gathered, and pack puts its result back.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

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
  static void rule(RuleOf<Momentum> s);
  static void cost(ShapeOf<Momentum> s, OpCost& c);
  static constexpr Effect effect = Effect::update;
};

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
  static void rule(RuleOf<Orthogonalize> s);
  static void cost(ShapeOf<Orthogonalize> s, OpCost& c);
};

struct FactoredSquares {
  static constexpr const char* kind = "factored_squares";
  static constexpr const char* help =
      "sums of (clip * gradient)^2 over the columns of each matrix, over its rows, and over both";
  static constexpr OperandDef operands[] = {
      {"gradient"}, {"clip"}, {"rows", Access::write}, {"columns", Access::write}, {"total", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("batch", 0), int_attr("columns", 1)};
  static void rule(RuleOf<FactoredSquares> s);
};

struct MeanUpdate {
  static constexpr const char* kind = "mean_update";
  static constexpr const char* help = "mean += step^decay * (sum / count - mean), unless keep is 0";
  static constexpr OperandDef operands[] = {{"mean", Access::update}, {"sum"}, {"step"}, {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("decay", -0.8), real_attr("count", 1.0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<MeanUpdate>);
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
  static void rule(RuleOf<FactoredDirection> s);
};

struct SquareSum {
  static constexpr const char* kind = "square_sum";
  static constexpr const char* help = "sum = sum of x^2, in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::write}};
  static void rule(RuleOf<SquareSum> s);
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
  static void rule(RuleOf<AdafactorFactor> s);
};

struct ScaleBy {
  static constexpr const char* kind = "scale_by";
  static constexpr const char* help = "y = factor * x, for a factor in fp64 that is rounded to what x is in";
  static constexpr OperandDef operands[] = {{"x"}, {"factor"}, {"y", Access::write}};
  static void rule(RuleOf<ScaleBy> s);
};

// Says where pack leaves room between tensors.
struct Blank {
  static constexpr const char* kind = "blank";
  static constexpr const char* help = "x = 0, of a value that nothing was in";
  static constexpr OperandDef operands[] = {{"x", Access::write}};
  static void rule(RuleOf<Blank>);
};

struct Unpack {
  static constexpr const char* kind = "unpack";
  static constexpr const char* help = "tensor = elements of a flat range, from `offset` on";
  static constexpr OperandDef operands[] = {{"packed"}, {"tensor", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("offset", 0)};
  static void rule(RuleOf<Unpack>);
  static void cost(ShapeOf<Unpack> s, OpCost& c);
};

struct Pack {
  static constexpr const char* kind = "pack";
  static constexpr const char* help =
      "elements of a flat range, from `offset` on, = tensor: those of them that lie in the rank's part of it";
  static constexpr OperandDef operands[] = {{"tensor"}, {"packed", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("offset", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<Pack>);
  static void cost(ShapeOf<Pack> s, OpCost& c);
};

}  // namespace prun::ops
