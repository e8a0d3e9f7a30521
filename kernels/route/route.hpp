// SPDX-License-Identifier: Apache-2.0
// The op route says which `choices` experts each position goes to, and with which weights, from its scores of
// all of them.
//   scores   softmax of the logits, or the sigmoid of each
//   choice   the largest of score + bias; with groups, of those groups alone whose `group_best` largest come
//   to
//            most. Of equal ones it takes the lower number.
//   weights  the scores of those chosen, without the bias, divided by their sum if normalised, times `scale`
// The gradient flows through the weights alone; the numbers of the chosen have none.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef weighting[] = {int_attr("sigmoid", 0), int_attr("normalise", 1),
                                        real_attr("scale", 1.0)};

struct Route {
  static constexpr const char* kind = "route";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the experts that each position chooses, and their weights";
  static constexpr OperandDef operands[] = {
      {"logits"}, {"bias", Access::read, true}, {"index", Access::write}, {"weight", Access::write}};
  static constexpr AttrDef attrs[] = {weighting[0],
                                      weighting[1],
                                      weighting[2],
                                      int_attr("choices", 1),
                                      int_attr("groups", 1),
                                      int_attr("chosen_groups", 1),
                                      int_attr("group_best", 2)};
  static void rule(RuleOf<Route> s);
  static void gradient(GradientOf<Route> g);
  static void check_choices(ShapeOf<Route> s, std::int64_t routes);
};

struct RouteGrad {
  static constexpr const char* kind = "route_grad";
  static constexpr const char* help = "dlogits of route, through the weights of the chosen";
  static constexpr OperandDef operands[] = {{"logits"}, {"index"}, {"dweight"}, {"dlogits", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = weighting;
  static void rule(RuleOf<RouteGrad> s);
};

}  // namespace prun::ops
