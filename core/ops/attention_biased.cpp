// Defines attention_biased, T5's: softmax(scale q k^T + bias) v, where the bias depends on the head and on
// how far the key lies from the query, in buckets of distances (prun/relative_buckets.hpp says which).
// Without a causal mask, half of the buckets are of keys behind the query. The table is a value as any other,
// since all layers may share it; its gradient is one too. Backward reads the result and the log of each row's
// sum of exponentials, which are kept.
#include <vector>

#include "ops/packed_heads.hpp"

namespace prun {
namespace {

// `distance` is where the last bucket begins: it has all keys from there on.
constexpr AttrDef biased_attrs[] = {int_attr("causal", 1), int_attr("distance", 128),
                                    real_attr("scale", 1.0)};

void check_biased(const OpShape& s, int q, int table, const char* op) {
  const OperandShape &queries = s.operand[q], &bias = s.operand[table];
  require(bias.rank == 2 && bias.dims[0] == queries.dims[2] && bias.dtype == queries.dtype, op,
          " takes a table [heads, buckets]");
  const std::int64_t each = s.attrs[0].i != 0 ? bias.dims[1].extent : bias.dims[1].extent / 2;
  require(each >= 2 && s.attrs[1].i > each / 2, op,
          " takes 2 buckets or more in each direction, and a distance "
          "beyond the first half of them");
}

double biased_flops(const OperandShape& q, const Attr* attrs) {
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(q.dims[1].extent) *
         (attrs[0].i != 0 ? 0.5 : 1.0);
}

struct AttentionBiased {
  static constexpr const char* kind = "attention_biased";
  static constexpr const char* help = "attention whose scores have a bias by head and distance";
  static constexpr OperandDef operands[] = {
      {"q"}, {"k"}, {"v"}, {"table"}, {"y", Access::write}, {"lse", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = biased_attrs;
  static void rule(OpShape& s) {
    check_apart(s, kind, 0);
    check_biased(s, 0, 3, kind);
    const OperandShape& q = s.operand[0];
    const Dim dims[] = {q.dims[0], q.dims[2], q.dims[3], q.dims[1]};
    s.like(4, 0);
    s.output(5, OpShape::statistics(q.dtype), dims, 4);
    s.whole(0, 1, 2);
    s.whole(0, 4, 5);
    s.whole(3, 1, 2);
  }
  static void gradient(const Gradient& g) {
    g.inputs(
        {0, 1, 2, 3}, "attention_biased_grad",
        {g.arrived(4), g.operand(0), g.operand(1), g.operand(2), g.operand(3), g.operand(4), g.operand(5)},
        {{"causal", g.attr("causal")}, {"distance", g.attr("distance")}, {"scale", g.attr("scale")}});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = biased_flops(s.operand[0], s.attrs); }
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
  static constexpr const AttrDef (&attrs)[3] = biased_attrs;
  static void rule(OpShape& s) {
    check_apart(s, kind, 1);
    check_biased(s, 1, 4, kind);
    for (int i = 0; i < 4; ++i) s.like(7 + i, 1 + i);
    s.sum(1, 0, 1);
    s.whole(1, 1, 2);
    s.sum(1, 3, 4);
    s.whole(1, 4, 5);
    s.whole(4, 1, 2);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 2.5 * biased_flops(s.operand[1], s.attrs); }
};

}  // namespace

std::vector<OpDef> attention_biased_ops() {
  return {op_def<AttentionBiased>(), op_def<AttentionBiasedGrad>()};
}

}  // namespace prun
