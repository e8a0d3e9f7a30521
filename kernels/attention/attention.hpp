// SPDX-License-Identifier: Apache-2.0
// The op attention computes softmax(q k^T / sqrt(head_dim)) v, causal or full, grouped-query: the `queries`
// of a head group share its key and value (kernels/rules/packed_heads.hpp). Backward reads the result and the
// log of each row's sum of exponentials, which are kept. `documents` (kernels/documents/documents.cpp) keeps
// documents apart: position i sees no key before documents[i]. `window`: position i sees no further back than
// itself and the window - 1 before it and, without a causal mask, the window - 1 behind it; 0: all of them.
// `softcap`: a score s becomes softcap * tanh(s / softcap), as in Gemma 2; 0: it stays as it is. `p`: so
// likely is a weight dropped, and those that stay are divided by 1 - p; which ones depends on (seed, layer,
// stream + head, sample, query, key) alone, and lse has all of them. attention_across and its gradient are
// the same where ranks share out the sequence: queries are of some positions, keys and values of all, which
// have a separate dimension, in order. attention_at is the same for some positions at a time, where text
// is made. attention_packed and its gradient are the same on the packed projection itself. No model needs
// them: a device may put them in, instead of taking the projection apart and putting the gradient together.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef causal_attr = int_attr("causal", 1), drop_chance_attr = later(real_attr("p", 0.0)),
                         drop_stream_attr = later(int_attr("stream", 0)),
                         score_softcap_attr = later(real_attr("softcap", 0));
inline constexpr AttrDef attention_mask_attrs[] = {causal_attr, later(int_attr("window", 0)),
                                                   score_softcap_attr};
inline constexpr AttrDef attention_attrs[] = {causal_attr, later(int_attr("window", 0)), score_softcap_attr,
                                              drop_chance_attr, drop_stream_attr};

// Queries are in order, or as prun/sequence_order.hpp says; keys and values are in order. `window` is how
// many keys, its own among them, a position sees at most; 0 means all. With `ahead`, keys and values are not
// those of all positions but those of each chunk of the queries, behind so many in front of it
// (kernels/halo/halo.hpp); a sequence has `parts` chunks.
inline constexpr AttrDef attention_across_attrs[] = {causal_attr,
                                                     int_attr("window", 0),
                                                     int_attr("chunk", 0),
                                                     int_attr("chunks", 0),
                                                     later(int_attr("ahead", 0)),
                                                     later(int_attr("parts", 0)),
                                                     score_softcap_attr,
                                                     drop_chance_attr,
                                                     drop_stream_attr};

// These are needed where weights are dropped.
inline constexpr OperandDef attention_samples = {"samples", Access::read, true},
                            attention_seed = {"seed", Access::read, true};

// A sink is one more score for each head of queries, of no key: it takes its share of the weights.
inline constexpr OperandDef attention_sink = {"sink", Access::read, true};

// dsink = -sum over rows of exp(sink - lse) dy . y
struct AttentionSinkGrad {
  static constexpr const char* kind = "attention_sink_grad";
  static constexpr const char* help = "dsink of attention";
  static constexpr OperandDef operands[] = {{"dy"}, {"y"}, {"lse"}, {"sink"}, {"dsink", Access::write}};
  static void rule(RuleOf<AttentionSinkGrad> s);
  static void cost(ShapeOf<AttentionSinkGrad> s, OpCost& c);
};

struct Attention {
  static constexpr const char* kind = "attention";
  static constexpr const char* at_position = "attention_at";
  static constexpr const char* across = "attention_across";
  static constexpr const char* help = "scaled dot-product attention";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"y", Access::write},
                                            {"lse", Access::write},
                                            documents_operand,
                                            attention_sink,
                                            attention_samples,
                                            attention_seed};
  static constexpr const AttrDef (&attrs)[5] = attention_attrs;
  static constexpr const char* noise = "p";
  static void rule(RuleOf<Attention> s);
  static void gradient(GradientOf<Attention> g);
  static void cost(ShapeOf<Attention> s, OpCost& c);
};

// Keeps the keys and values of all positions up to these: theirs are added to them.
struct AttentionAt {
  static constexpr const char* kind = "attention_at";
  static constexpr const char* help = "causal attention of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"position"},
                                            {"kept_k", Access::update},
                                            {"kept_v", Access::update},
                                            {"y", Access::write},
                                            {"lse", Access::write},
                                            attention_sink,
                                            attention_samples,
                                            attention_seed};
  static constexpr const AttrDef (&attrs)[5] = attention_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<AttentionAt> s);
  static void cost(ShapeOf<AttentionAt> s, OpCost& c);
};

struct AttentionGrad {
  static constexpr const char* kind = "attention_grad";
  static constexpr const char* across = "attention_across_grad";
  static constexpr const char* help = "dq, dk and dv of attention, scores computed again";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"k"},
                                            {"v"},
                                            {"y"},
                                            {"lse"},
                                            {"dq", Access::write},
                                            {"dk", Access::write},
                                            {"dv", Access::write},
                                            documents_operand,
                                            attention_samples,
                                            attention_seed};
  static constexpr const AttrDef (&attrs)[5] = attention_attrs;
  static void rule(RuleOf<AttentionGrad> s);
  static void cost(ShapeOf<AttentionGrad> s, OpCost& c);
};

struct AttentionPacked {
  static constexpr const char* kind = "attention_packed";
  static constexpr const char* help = "split_heads and attention";
  static constexpr OperandDef operands[] = {
      {"x"}, {"y", Access::write}, {"lse", Access::write}, documents_operand, attention_sink};
  static constexpr const AttrDef (&attrs)[3] = attention_mask_attrs;
  static void rule(RuleOf<AttentionPacked> s);
  static void cost(ShapeOf<AttentionPacked> s, OpCost& c);
};

struct AttentionPackedGrad {
  static constexpr const char* kind = "attention_packed_grad";
  static constexpr const char* help = "attention_grad and join_heads";
  static constexpr OperandDef operands[] = {{"dy"},           {"x"}, {"y"}, {"lse"}, {"dx", Access::write},
                                            documents_operand};
  static constexpr const AttrDef (&attrs)[3] = attention_mask_attrs;
  static void rule(RuleOf<AttentionPackedGrad> s);
  static void cost(ShapeOf<AttentionPackedGrad> s, OpCost& c);
};

struct AttentionAcross {
  static constexpr const char* kind = "attention_across";
  static constexpr const char* at_position = kind;  // without a mask
  static constexpr const char* help = "attention of a part of the positions to all of them";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"all_k"},
                                            {"all_v"},
                                            {"y", Access::write},
                                            {"lse", Access::write},
                                            documents_operand,
                                            attention_sink,
                                            attention_samples,
                                            attention_seed};
  static constexpr const AttrDef (&attrs)[9] = attention_across_attrs;
  static constexpr const char* noise = "p";
  static void rule(RuleOf<AttentionAcross> s);
  static void gradient(GradientOf<AttentionAcross> g);
  static void cost(ShapeOf<AttentionAcross> s, OpCost& c);
};

struct AttentionAcrossGrad {
  static constexpr const char* kind = "attention_across_grad";
  static constexpr const char* help = "dq of attention_across, and what its queries add to dk and dv of all";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"all_k"},
                                            {"all_v"},
                                            {"y"},
                                            {"lse"},
                                            {"dq", Access::write},
                                            {"all_dk", Access::write},
                                            {"all_dv", Access::write},
                                            documents_operand,
                                            attention_samples,
                                            attention_seed};
  static constexpr const AttrDef (&attrs)[9] = attention_across_attrs;
  static void rule(RuleOf<AttentionAcrossGrad> s);
  static void cost(ShapeOf<AttentionAcrossGrad> s, OpCost& c);
};

}  // namespace prun::ops
