// The op route says which `choices` experts each position goes to, and with which weights, from its scores of
// all of them.
//   scores   softmax of the logits, or the sigmoid of each
//   choice   the largest of score + bias; with groups, of those groups alone whose `group_best` largest come
//   to
//            most. Of equal ones it takes the lower number.
//   weights  the scores of those chosen, without the bias, divided by their sum if normalised, times `scale`
// The gradient flows through the weights alone; the numbers of the chosen have none.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef weighting[] = {int_attr("sigmoid", 0), int_attr("normalise", 1), real_attr("scale", 1.0)};

void check_logits(const OperandShape& logits, const char* op) {
  require(logits.rank >= 2 && (logits.dtype == DType::f32 || logits.dtype == DType::f64), op,
          " takes logits [..., routes] in fp32 or fp64");
}

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
  static void rule(OpShape& s) {
    const OperandShape& logits = s.operand[0];
    check_logits(logits, kind);
    const Dim& routes = logits.dims[logits.rank - 1];
    check_choices(s, routes.extent);
    if (s.operand[1].present)
      require(s.operand[1].rank == 1 && s.operand[1].dims[0] == routes && s.operand[1].dtype == logits.dtype,
              "route takes a bias [routes] of the logits' type");
    Dim dims[max_dims];
    for (int i = 0; i < logits.rank; ++i) dims[i] = logits.dims[i];
    dims[logits.rank - 1] = {"choice", s.attrs[3].i};
    const DType type = logits.dtype;
    s.whole(routes.name);
    s.output(2, DType::i32, dims, logits.rank);
    s.output(3, type, dims, s.operand[2].rank);
    s.whole("choice");
  }
  static void gradient(const Gradient& g) {
    g.input(0, "route_grad", {g.operand(0), g.operand(2), g.arrived(3)},
            {{"sigmoid", g.attr("sigmoid")}, {"normalise", g.attr("normalise")}, {"scale", g.attr("scale")}});
  }

 private:
  static void check_choices(const OpShape& s, std::int64_t routes) {
    const std::int64_t k = s.attrs[3].i, groups = s.attrs[4].i, chosen = s.attrs[5].i, best = s.attrs[6].i;
    require(groups >= 1 && routes % groups == 0, "route: ", routes, " experts are not ", groups,
            " equal groups");
    require(chosen >= 1 && chosen <= groups, "route: ", chosen, " of ", groups, " groups cannot be chosen");
    require(k >= 1 && k <= chosen * (routes / groups), "route: ", k, " choices are more than the ",
            chosen * (routes / groups), " experts that they are made among");
    require(best == 1 || best == 2, "route: group_best is 1 or 2, not ", best);
    require(groups == 1 || best <= routes / groups, "route: groups of ", routes / groups, " experts have no ",
            best, " best");
  }
};

struct RouteGrad {
  static constexpr const char* kind = "route_grad";
  static constexpr const char* help = "dlogits of route, through the weights of the chosen";
  static constexpr OperandDef operands[] = {{"logits"}, {"index"}, {"dweight"}, {"dlogits", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = weighting;
  static void rule(OpShape& s) {
    const OperandShape &logits = s.operand[0], &index = s.operand[1];
    check_logits(logits, kind);
    require(index.dtype == DType::i32 && index.rank == logits.rank && s.operand[2].dtype == logits.dtype,
            "route_grad takes i32 choices and dweight of the logits' type");
    s.like(3, 0);
    s.whole(logits.dims[logits.rank - 1].name);
    s.whole(index.dims[index.rank - 1].name);
    s.pass_partial({2});
  }
};

}  // namespace

std::vector<OpDef> route_ops() { return {op_def<Route>(), op_def<RouteGrad>()}; }

}  // namespace prun
