// SPDX-License-Identifier: Apache-2.0
// Defines split_heads, which takes queries, keys and values out of one packed projection; join_heads, its
// gradient, puts them together again (kernels/rules/packed_heads.hpp).
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct SplitHeads {
  static constexpr const char* kind = "split_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* apart = "split_heads_apart";
  static constexpr const char* help = "queries, keys and values out of a packed projection";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static void rule(RuleOf<SplitHeads> s);
  static void gradient(GradientOf<SplitHeads> g);
};

struct JoinHeads {
  static constexpr const char* kind = "join_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, keys and values side by side, packed by head group";
  static constexpr OperandDef operands[] = {{"q"}, {"k"}, {"v"}, {"x", Access::write}};
  static void rule(RuleOf<JoinHeads> s);
  static void gradient(GradientOf<JoinHeads> g);
};

struct SplitHeadsApart {
  static constexpr const char* kind = "split_heads_apart";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, keys and values out of a projection in two";
  static constexpr OperandDef operands[] = {
      {"x_first"}, {"x_last"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static void rule(RuleOf<SplitHeadsApart> s);
  static void gradient(GradientOf<SplitHeadsApart> g);
};

struct JoinHeadsApart {
  static constexpr const char* kind = "join_heads_apart";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "queries, and keys and values side by side";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"x_first", Access::write}, {"x_last", Access::write}};
  static void rule(RuleOf<JoinHeadsApart> s);
  static void gradient(GradientOf<JoinHeadsApart> g);
};

}  // namespace prun::ops
