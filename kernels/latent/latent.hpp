// SPDX-License-Identifier: Apache-2.0
// Attention whose keys and values come out of a narrow latent vector (DeepSeek's MLA).
// split_latent takes a projection apart: the latent part, which is normed next, and the channels of the keys
// that turn with the position, which all heads share.
// latent_heads makes what attention takes: queries q[batch, seq, heads, head_dim], of whose channels the last
// `turned` turn; keys of kv's first channels beside the shared ones, turned; values of kv's last channels,
// with zeros up to the width of a key: attention knows one width. narrow_heads takes those columns off its
// result. Channels turn by pairs as `interleaved` says: neighbours, or channel i and i + turned / 2, which is
// how they lie in the result.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

// The first eight are rope's, for the channels that turn: whole queries are multiplied by `query_scale`, and
// the turning channels of queries and keys alike by `key_scale`. kernels/rope_frequency.hpp says what the
// others mean.
inline constexpr AttrDef latent_attrs[] = {
    real_attr("base", 10000.0),    real_attr("factor", 1.0),      real_attr("low", 1.0),
    real_attr("high", 4.0),        real_attr("original", 8192.0), int_attr("scaling", 0),
    real_attr("query_scale", 1.0), real_attr("key_scale", 1.0),   int_attr("turned", 2),
    int_attr("values", 1),         int_attr("interleaved", 1)};

inline constexpr AttrDef turned_attr[] = {int_attr("turned", 2)};
inline constexpr AttrDef width_attrs[] = {int_attr("values", 1), int_attr("head_dim", 1)};

struct LatentHeads {
  static constexpr const char* kind = "latent_heads";
  static constexpr const char* at_position = "latent_heads_at";
  static constexpr const char* help =
      "queries, keys and values of attention from a latent vector, turned by position";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"kv"},
                                            {"shared"},
                                            {"q", Access::write},
                                            {"k", Access::write},
                                            {"v", Access::write},
                                            positions_operand};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(RuleOf<LatentHeads> s);
  static void gradient(GradientOf<LatentHeads> g);
};

struct LatentHeadsAt {
  static constexpr const char* kind = "latent_heads_at";
  static constexpr const char* help = "latent_heads of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"kv"},
                                            {"shared"},
                                            {"position"},
                                            {"q", Access::write},
                                            {"k", Access::write},
                                            {"v", Access::write}};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(RuleOf<LatentHeadsAt> s);
};

struct LatentHeadsGrad {
  static constexpr const char* kind = "latent_heads_grad";
  static constexpr const char* help = "dx, dkv and dshared of latent_heads";
  static constexpr OperandDef operands[] = {{"dq"},
                                            {"dk"},
                                            {"dv"},
                                            {"dx", Access::write},
                                            {"dkv", Access::write},
                                            {"dshared", Access::write},
                                            positions_operand};
  static constexpr const AttrDef (&attrs)[11] = latent_attrs;
  static void rule(RuleOf<LatentHeadsGrad> s);
};

// Splits one of two sides: `whole` [batch, seq, latents], of which the last `turned` are apart.
struct SplitLatent {
  static constexpr const char* kind = "split_latent";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the last channels of a projection apart from those before them";
  static constexpr OperandDef operands[] = {{"x"}, {"latent", Access::write}, {"shared", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = turned_attr;
  static void rule(RuleOf<SplitLatent> s);
  static void gradient(GradientOf<SplitLatent> g);
};

struct JoinLatent {
  static constexpr const char* kind = "join_latent";
  static constexpr const char* help = "channels side by side: dx of split_latent";
  static constexpr OperandDef operands[] = {{"latent"}, {"shared"}, {"x", Access::write}};
  static void rule(RuleOf<JoinLatent> s);
};

struct NarrowHeads {
  static constexpr const char* kind = "narrow_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the first channels of each head";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = width_attrs;
  static void rule(RuleOf<NarrowHeads> s);
  static void gradient(GradientOf<NarrowHeads> g);
};

struct WidenHeads {
  static constexpr const char* kind = "widen_heads";
  static constexpr const char* help = "dx of narrow_heads: zeros behind the channels of each head";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = width_attrs;
  static void rule(RuleOf<WidenHeads> s);
};

}  // namespace prun::ops
