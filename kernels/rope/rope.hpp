// SPDX-License-Identifier: Apache-2.0
// The op rope is the rotary position embedding, usually in the half-split form of Llama. It takes queries,
// keys and values out of one packed projection (kernels/rules/packed_heads.hpp), turns queries and keys on
// the way and multiplies them by query_scale and key_scale, those channels that turn by turned_scale besides;
// its gradient turns theirs back and puts all three together. The first `turned` channels of a head turn, or
// all where that is 0; with `interleaved` neighbours make a pair among them. Queries grow with the position
// where `query_growth` is not 0. Where `scaling` is by list, `slower_00` and those behind it say by how much
// each pair is slowed down.
#pragma once

#include <algorithm>

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr std::size_t most_listed = 64,
                             single_turn_attrs = 12;  // attributes that are lists, and others

// Holds the names of the numbers of pairs: "slower_00" and so on.
struct SlowerNames {
  char of[most_listed][12] = {};

  constexpr SlowerNames() {
    for (std::size_t i = 0; i < most_listed; ++i) {
      const char name[] = {'s', 'l', 'o', 'w', 'e', 'r', '_'};
      std::copy_n(name, 7, of[i]);
      of[i][7] = static_cast<char>('0' + i / 10);
      of[i][8] = static_cast<char>('0' + i % 10);
    }
  }
};
inline constexpr SlowerNames slower_names;

// kernels/rope_frequency.hpp says what they mean.
struct TurnAttrs {
  AttrDef all[single_turn_attrs + most_listed] = {real_attr("base", 10000.0),
                                                  real_attr("factor", 1.0),
                                                  real_attr("low", 1.0),
                                                  real_attr("high", 4.0),
                                                  real_attr("original", 8192.0),
                                                  later(int_attr("scaling", 0)),
                                                  later(real_attr("query_scale", 1.0)),
                                                  later(real_attr("key_scale", 1.0)),
                                                  later(int_attr("turned", 0)),
                                                  later(int_attr("interleaved", 0)),
                                                  later(real_attr("query_growth", 0.0)),
                                                  later(real_attr("turned_scale", 1.0))};

  constexpr TurnAttrs() {
    for (std::size_t i = 0; i < most_listed; ++i)
      all[single_turn_attrs + i] = later(real_attr(slower_names.of[i], 1.0));
  }
};
inline constexpr TurnAttrs turn_attrs;
using TurnAttrList = const AttrDef (&)[single_turn_attrs + most_listed];

struct Rope {
  static constexpr const char* kind = "rope";
  static constexpr const char* at_position = "rope_at";
  static constexpr const char* apart = "rope_apart";
  static constexpr const char* help =
      "packed queries, keys and values apart, the first two turned by position";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}, positions_operand};
  static constexpr TurnAttrList attrs = turn_attrs.all;
  static void rule(RuleOf<Rope> s);
  static void gradient(GradientOf<Rope> g);
};

struct RopeAt {
  static constexpr const char* kind = "rope_at";
  static constexpr const char* help = "rope of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {
      {"x"}, {"position"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static constexpr TurnAttrList attrs = turn_attrs.all;
  static void rule(RuleOf<RopeAt> s);
};

struct RopeGrad {
  static constexpr const char* kind = "rope_grad";
  static constexpr const char* help = "dx of rope";
  static constexpr OperandDef operands[] = {{"dq"}, {"dk"}, {"dv"}, {"dx", Access::write}, positions_operand};
  static constexpr TurnAttrList attrs = turn_attrs.all;
  static void rule(RuleOf<RopeGrad> s);
};

struct RopeApart {
  static constexpr const char* kind = "rope_apart";
  static constexpr const char* help = "rope of a projection in two";
  static constexpr OperandDef operands[] = {{"x_first"},          {"x_last"},           {"q", Access::write},
                                            {"k", Access::write}, {"v", Access::write}, positions_operand};
  static constexpr TurnAttrList attrs = turn_attrs.all;
  static void rule(RuleOf<RopeApart> s);
  static void gradient(GradientOf<RopeApart> g);
};

struct RopeApartGrad {
  static constexpr const char* kind = "rope_apart_grad";
  static constexpr const char* help = "dx of rope_apart";
  static constexpr OperandDef operands[] = {
      {"dq"}, {"dk"}, {"dv"}, {"dx_first", Access::write}, {"dx_last", Access::write}, positions_operand};
  static constexpr TurnAttrList attrs = turn_attrs.all;
  static void rule(RuleOf<RopeApartGrad> s);
};

}  // namespace prun::ops
