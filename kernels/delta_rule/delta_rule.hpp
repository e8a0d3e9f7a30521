// SPDX-License-Identifier: Apache-2.0
// Defines the gated delta rule, attention whose cost grows with the length alone: a head keeps a matrix, its
// state, that maps keys to values. In every position the state decays, what it holds under the position's key
// moves towards the position's value by the share beta, and the query reads it:
//   S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q / sqrt(key_dim)
// delta_rule computes it in chunks of positions. Neighbouring value heads share a key head, as queries of
// attention share a key: the last dimension of heads has so many times as many of values as of keys.
// `documents` (kernels/documents/documents.cpp) keeps documents apart: the state begins anew with each.
// delta_rule_at is the same for some positions at a time, where text is made; it goes on from `state`, which
// does not grow with the text.
//
// Where ranks share out sequences (kernels/rules/run_shapes.hpp), what a run of positions makes of the state
// S in front of it is M S + E. delta_maps gives both, ranks gather those of all runs, and delta_starts puts
// them together to the state in front of each, with which delta_rule_runs computes the run. In backward the
// gradient of the state goes the other way: D behind a run is M^T D + B in front of it, where B is what the
// run's results give.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef delta_chunk = int_attr("chunk", 64);
inline constexpr AttrDef delta_rule_attrs[] = {delta_chunk, runs_attr, zigzag_attr, over_attr};
inline constexpr AttrDef delta_runs_attrs[] = {delta_chunk, rows_attr, chunks_attr};
inline constexpr AttrDef delta_starts_attrs[] = {int_attr("key_dim", 1), int_attr("value_dim", 1),
                                                 int_attr("back", 0)};

struct DeltaRule {
  static constexpr const char* kind = "delta_rule";
  static constexpr const char* at_position = "delta_rule_at";
  static constexpr const char* help = "gated delta rule: a state that decays and learns values by their keys";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"g"},
                                            {"beta"},
                                            {"y", Access::write},
                                            {"state", Access::write},
                                            documents_operand};
  static constexpr const AttrDef (&attrs)[4] = delta_rule_attrs;
  static void rule(RuleOf<DeltaRule> s);
  static void gradient(GradientOf<DeltaRule> g);
  static void split(SplitOf<DeltaRule> s);
  static void cost(ShapeOf<DeltaRule> s, OpCost& c);
};

// Goes on from the state behind the positions before.
struct DeltaRuleAt {
  static constexpr const char* kind = "delta_rule_at";
  static constexpr const char* help = "the gated delta rule of the positions from the one that is given on";
  static constexpr OperandDef operands[] = {{"q"},
                                            {"k"},
                                            {"v"},
                                            {"g"},
                                            {"beta"},
                                            {"position"},
                                            {"kept_state", Access::update},
                                            {"y", Access::write},
                                            {"state", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = delta_rule_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<DeltaRuleAt> s);
  static void cost(ShapeOf<DeltaRuleAt> s, OpCost& c);
};

struct DeltaRuleGrad {
  static constexpr const char* kind = "delta_rule_grad";
  static constexpr const char* help = "dq, dk, dv, dg and dbeta of delta_rule, states computed again";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"k"},
                                            {"v"},
                                            {"g"},
                                            {"beta"},
                                            documents_operand,
                                            {"dq", Access::write},
                                            {"dk", Access::write},
                                            {"dv", Access::write},
                                            {"dg", Access::write},
                                            {"dbeta", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = delta_rule_attrs;
  static void rule(RuleOf<DeltaRuleGrad> s);
  static void split(SplitOf<DeltaRuleGrad> s);
  static void cost(ShapeOf<DeltaRuleGrad> s, OpCost& c);
};

// Has of each run and value head M [key, key], E [key, value] and, if there are queries and gradients, B
// [key, value].
struct DeltaMaps {
  static constexpr const char* kind = "delta_maps";
  static constexpr const char* help =
      "what each run of delta_rule makes of the state S in front of it, M S + E, and of the gradient behind";
  static constexpr OperandDef operands[] = {{"k"},
                                            {"v"},
                                            {"g"},
                                            {"beta"},
                                            {"q", Access::read, true},
                                            {"dy", Access::read, true},
                                            documents_operand,
                                            {"maps", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = delta_runs_attrs;
  static void rule(RuleOf<DeltaMaps> s);
  static void cost(ShapeOf<DeltaMaps> s, OpCost& c);
};

struct DeltaStarts {
  static constexpr const char* kind = "delta_starts";
  static constexpr const char* help =
      "the state in front of each run, or with `back` the gradient of the state behind it";
  static constexpr OperandDef operands[] = {{"maps"}, {"starts", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = delta_starts_attrs;
  static void rule(RuleOf<DeltaStarts> s);
  static void cost(ShapeOf<DeltaStarts> s, OpCost& c);
};

struct DeltaRuleRuns {
  static constexpr const char* kind = "delta_rule_runs";
  static constexpr const char* help = "delta_rule of runs of positions, each from a state that is given";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"g"}, {"beta"}, {"starts"}, documents_operand, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = delta_runs_attrs;
  static void rule(RuleOf<DeltaRuleRuns> s);
  static void cost(ShapeOf<DeltaRuleRuns> s, OpCost& c);
};

// `ends` are the gradients of the states behind each run.
struct DeltaRuleRunsGrad {
  static constexpr const char* kind = "delta_rule_runs_grad";
  static constexpr const char* help = "dq, dk, dv, dg and dbeta of delta_rule in runs";
  static constexpr OperandDef operands[] = {{"dy"},
                                            {"q"},
                                            {"k"},
                                            {"v"},
                                            {"g"},
                                            {"beta"},
                                            {"starts"},
                                            {"ends"},
                                            documents_operand,
                                            {"dq", Access::write},
                                            {"dk", Access::write},
                                            {"dv", Access::write},
                                            {"dg", Access::write},
                                            {"dbeta", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = delta_runs_attrs;
  static void rule(RuleOf<DeltaRuleRunsGrad> s);
  static void cost(ShapeOf<DeltaRuleRunsGrad> s, OpCost& c);
};

}  // namespace prun::ops
