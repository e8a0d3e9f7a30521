// The op router computes logits[..., routes] = x[..., hidden] * weight[routes, hidden], in the type of
// statistics whatever x is in, since near choices differ in their last bits alone. `routes` is another
// dimension than `experts`: where experts are sharded over ranks, each still scores all of them.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

std::int64_t leading(const OperandShape& value) {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < value.rank; ++i) n *= value.dims[i].extent;
  return n;
}

void check_leading(const OperandShape& a, const OperandShape& b, const char* op) {
  bool same = a.rank == b.rank && a.rank >= 2;
  for (int i = 0; same && i + 1 < a.rank; ++i) same = a.dims[i] == b.dims[i];
  require(same, op, ": the two values have other leading dimensions");
}

struct Router {
  static constexpr const char* kind = "router";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "scores of all experts, kept with more precision than x";
  static constexpr OperandDef operands[] = {{"x"}, {"weight"}, {"logits", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    require(x.rank >= 2 && w.rank == 2 && x.dims[x.rank - 1] == w.dims[1] && x.dtype == w.dtype,
            "router takes x [..., hidden] and a weight [routes, hidden] of one type");
    Dim dims[max_dims];
    for (int i = 0; i + 1 < x.rank; ++i) dims[i] = x.dims[i];
    dims[x.rank - 1] = w.dims[0];
    s.output(2, OpShape::statistics(x.dtype), dims, x.rank);
    s.sum(w.dims[1].name);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "router_input_grad", {g.arrived(2), g.operand(1)});
    g.weight({1}, "router_weight_grad", {g.operand(0), g.arrived(2)});
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2.0 * static_cast<double>(leading(s.operand[0])) * static_cast<double>(s.operand[1].elements());
  }
};

struct RouterInputGrad {
  static constexpr const char* kind = "router_input_grad";
  static constexpr const char* help = "dx = dlogits * weight";
  static constexpr OperandDef operands[] = {{"dlogits"}, {"weight"}, {"dx", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &d = s.operand[0], &w = s.operand[1];
    require(d.rank >= 2 && w.rank == 2 && d.dims[d.rank - 1] == w.dims[0],
            "router_input_grad takes dlogits [..., routes] and a weight [routes, hidden]");
    Dim dims[max_dims];
    for (int i = 0; i + 1 < d.rank; ++i) dims[i] = d.dims[i];
    dims[d.rank - 1] = w.dims[1];
    s.output(2, w.dtype, dims, d.rank);
    s.sum(w.dims[0].name);
    s.pass_partial({0});
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2.0 * static_cast<double>(leading(s.operand[0])) * static_cast<double>(s.operand[1].elements());
  }
};

struct RouterWeightGrad {
  static constexpr const char* kind = "router_weight_grad";
  static constexpr const char* help = "dweight += dlogits^T * x";
  static constexpr OperandDef operands[] = {{"x"}, {"dlogits"}, {"dweight", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_leading(s.operand[0], s.operand[1], kind);
    s.sum(0, 0, s.operand[0].rank - 1);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2.0 * static_cast<double>(leading(s.operand[0])) * static_cast<double>(s.operand[2].elements());
  }
};

}  // namespace

std::vector<OpDef> router_ops() {
  return {op_def<Router>(), op_def<RouterInputGrad>(), op_def<RouterWeightGrad>()};
}

}  // namespace prun
