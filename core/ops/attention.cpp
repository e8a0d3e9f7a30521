// attention: softmax(q k^T / sqrt(head_dim)) v, causal or full, grouped-query.
// Queries, keys and values come packed by head group: x[batch, seq, heads, packed, head_dim], where a group's
// `packed` slots are its queries (packed - 2 of them), one key and one value. Plain multi-head attention has
// packed = 3. Sharding `heads` shards all three together.
// Kept for backward: the result and the log of each row's sum of exponentials.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef causal_attr[] = {int_attr("causal", 1)};

// Two products of forward; a causal mask halves them.
double attention_flops(const OperandShape& x, bool causal) {
  const double seq = static_cast<double>(x.dims[1].extent);
  const double rows = static_cast<double>(x.dims[0].extent * x.dims[1].extent * x.dims[2].extent);
  const double queries = static_cast<double>(x.dims[3].extent - 2);
  return 4.0 * rows * queries * static_cast<double>(x.dims[4].extent) * seq * (causal ? 0.5 : 1.0);
}

struct Attention {
  static constexpr const char* kind = "attention";
  static constexpr const char* help = "scaled dot-product attention on packed queries, keys and values";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}, {"lse", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = causal_attr;
  static void rule(OpShape& s) {
    const OperandShape x = s.operand[0];
    require(x.rank == 5 && x.dims[3].extent >= 3,
            "attention takes [batch, seq, heads, packed, head_dim] with packed = queries + 2");
    const Dim queries{"queries", x.dims[3].extent - 2};
    const Dim y[] = {x.dims[0], x.dims[1], x.dims[2], queries, x.dims[4]};
    const Dim lse[] = {x.dims[0], x.dims[2], queries, x.dims[1]};
    s.output(1, x.dtype, y, 5);
    s.output(2, OpShape::statistics(x.dtype), lse, 4);
    s.whole(0, 1, 2);
    s.whole(0, 3, 5);
    s.whole(queries.name);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "attention_grad", {g.arrived(1), g.operand(0), g.operand(1), g.operand(2)},
            {{"causal", g.attr("causal")}});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = attention_flops(s.operand[0], s.attrs[0].i); }
};

struct AttentionGrad {
  static constexpr const char* kind = "attention_grad";
  static constexpr const char* help = "dx of attention, scores computed again";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"y"}, {"lse"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = causal_attr;
  static void rule(OpShape& s) {
    s.like(4, 1);
    s.whole(1, 1, 2);
    s.whole(1, 3, 5);
    s.whole(0, 3, 4);
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 2.5 * attention_flops(s.operand[1], s.attrs[0].i);
  }
};

}  // namespace

std::vector<OpDef> attention_ops() { return {op_def<Attention>(), op_def<AttentionGrad>()}; }

}  // namespace prun
