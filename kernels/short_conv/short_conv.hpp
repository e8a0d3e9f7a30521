// SPDX-License-Identifier: Apache-2.0
// Defines short_conv, a causal convolution of each channel along the sequence, and silu behind it:
//   y_t = silu(sum_j weight_j x_(t - taps + 1 + j)), so the last tap is the position's own.
// Channels may be several dimensions. Those of the weight may have other names, which no request to split x's
// reaches: then ranks have all of it, and gradients of it are sums over ranks. `documents`
// (kernels/documents/documents.cpp) keeps documents apart: what lies before a document counts as zero. `tail`
// has the last inputs, by their position modulo its length, with which short_conv_at goes on where text is
// made; it does not grow with the text. short_conv_runs and its gradients are the same where ranks share out
// sequences (kernels/rules/run_shapes.hpp): x has in front of each run the positions that the first sums of
// the run reach.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef conv_attrs[] = {runs_attr, zigzag_attr, over_attr};

inline constexpr AttrDef of_runs_attrs[] = {rows_attr, chunks_attr};

struct ShortConv {
  static constexpr const char* kind = "short_conv";
  static constexpr const char* at_position = "short_conv_at";
  static constexpr const char* help = "causal convolution of each channel along the sequence, and silu";
  static constexpr OperandDef operands[] = {
      {"x"}, {"weight"}, {"y", Access::write}, {"tail", Access::write}, documents_operand};
  static constexpr const AttrDef (&attrs)[3] = conv_attrs;
  static void rule(RuleOf<ShortConv> s);
  static void split(SplitOf<ShortConv> s);
  static void gradient(GradientOf<ShortConv> g);
  static void cost(ShapeOf<ShortConv> s, OpCost& c);
};

struct ShortConvAt {
  static constexpr const char* kind = "short_conv_at";
  static constexpr const char* help = "short_conv of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"weight"},
                                            {"position"},
                                            {"kept_tail", Access::update},
                                            {"y", Access::write},
                                            {"tail", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr const AttrDef (&attrs)[3] = conv_attrs;  // of short_conv, and without effect here
  static void rule(RuleOf<ShortConvAt> s);
  static void cost(ShapeOf<ShortConvAt> s, OpCost& c);
};

struct ShortConvInputGrad {
  static constexpr const char* kind = "short_conv_input_grad";
  static constexpr const char* help = "dx of short_conv";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = conv_attrs;
  static void rule(RuleOf<ShortConvInputGrad> s);
  static void split(SplitOf<ShortConvInputGrad> s);
  static void cost(ShapeOf<ShortConvInputGrad> s, OpCost& c);
};

struct ShortConvWeightGrad {
  static constexpr const char* kind = "short_conv_weight_grad";
  static constexpr const char* help = "dweight of short_conv";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dweight", Access::update}};
  static constexpr const AttrDef (&attrs)[3] = conv_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ShortConvWeightGrad> s);
  static void split(SplitOf<ShortConvWeightGrad> s);
  static void cost(ShapeOf<ShortConvWeightGrad> s, OpCost& c);
};

struct ShortConvRuns {
  static constexpr const char* kind = "short_conv_runs";
  static constexpr const char* help = "short_conv of runs of positions, each behind those that it reaches";
  static constexpr OperandDef operands[] = {{"x"}, {"weight"}, {"y", Access::write}, documents_operand};
  static constexpr const AttrDef (&attrs)[2] = of_runs_attrs;
  static void rule(RuleOf<ShortConvRuns> s);
  static void cost(ShapeOf<ShortConvRuns> s, OpCost& c);
};

struct ShortConvRunsInputGrad {
  static constexpr const char* kind = "short_conv_runs_input_grad";
  static constexpr const char* help = "dx of short_conv_runs, that of what stands in front of each run too";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = of_runs_attrs;
  static void rule(RuleOf<ShortConvRunsInputGrad> s);
  static void cost(ShapeOf<ShortConvRunsInputGrad> s, OpCost& c);
};

struct ShortConvRunsWeightGrad {
  static constexpr const char* kind = "short_conv_runs_weight_grad";
  static constexpr const char* help = "dweight of short_conv_runs";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"weight"}, documents_operand, {"dweight", Access::update}};
  static constexpr const AttrDef (&attrs)[2] = of_runs_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ShortConvRunsWeightGrad> s);
  static void cost(ShapeOf<ShortConvRunsWeightGrad> s, OpCost& c);
};

}  // namespace prun::ops
