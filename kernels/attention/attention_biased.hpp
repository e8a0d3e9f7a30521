// SPDX-License-Identifier: Apache-2.0
// Defines attention_biased, T5's: softmax(scale q k^T + bias) v, where the bias depends on the head and on
// how far the key lies from the query, in buckets of distances (prun/relative_buckets.hpp says which).
// Without a causal mask, half of the buckets are of keys behind the query. The table is a value as any other,
// since all layers may share it; its gradient is one too. Backward reads the result and the log of each row's
// sum of exponentials, which are kept. attention_biased_at is the same for some positions at a time, where
// text is made.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

// `distance` is where the last bucket begins: it has all keys from there on.
inline constexpr AttrDef biased_attention_attrs[] = {int_attr("causal", 1), int_attr("distance", 128),
                                                     real_attr("scale", 1.0)};

struct AttentionBiased {
  static constexpr const char* kind = "attention_biased";
  static constexpr const char* at_position = "attention_biased_at";
  static constexpr const char* help = "attention whose scores have a bias by head and distance";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"table"}, {"y", Access::write}, {"lse", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = biased_attention_attrs;
  static void rule(RuleOf<AttentionBiased> s);
  static void gradient(GradientOf<AttentionBiased> g);
  static void cost(ShapeOf<AttentionBiased> s, OpCost& c);
};

// Keeps the keys and values of all positions up to these: theirs are added to them.
struct AttentionBiasedAt {
  static constexpr const char* kind = "attention_biased_at";
  static constexpr const char* help =
      "causal attention_biased of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"table"},
                                            {"position"},
                                            {"kept_k", Access::update},
                                            {"kept_v", Access::update},
                                            {"y", Access::write},
                                            {"lse", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = biased_attention_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<AttentionBiasedAt> s);
  static void cost(ShapeOf<AttentionBiasedAt> s, OpCost& c);
};

struct AttentionBiasedGrad {
  static constexpr const char* kind = "attention_biased_grad";
  static constexpr const char* help = "dq, dk, dv and dtable of attention_biased, scores computed again";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"k"},
                                            {"v"},
                                            {"table"},
                                            {"y"},
                                            {"lse"},
                                            {"dq", Access::write},
                                            {"dk", Access::write},
                                            {"dv", Access::write},
                                            {"dtable", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = biased_attention_attrs;
  static void rule(RuleOf<AttentionBiasedGrad> s);
  static void cost(ShapeOf<AttentionBiasedGrad> s, OpCost& c);
};

}  // namespace prun::ops
