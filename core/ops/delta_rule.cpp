// Defines the gated delta rule, attention whose cost grows with the length alone: a head keeps a matrix, its
// state, that maps keys to values. In every position the state decays, what it holds under the position's key
// moves towards the position's value by the share beta, and the query reads it:
//   S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q / sqrt(key_dim)
// delta_rule computes it in chunks of positions. Neighbouring value heads share a key head, as queries of
// attention share a key: the last dimension of heads has so many times as many of values as of keys.
// `documents` (ops/documents.cpp) keeps documents apart: the state begins anew with each. delta_rule_at is
// the same for some positions at a time, where text is made; it goes on from `state`, which does not grow
// with the text.
//
// Three ops stand around it. split_mixed takes a projection apart that has, of each key head, what passes the
// short convolution and, behind it, the gate of what the head gives. delta_heads takes the former apart into
// a query, a key, both of length 1, and values. delta_gates gives decay and share from numbers of their own.
#include <algorithm>
#include <vector>

#include "base/require.hpp"
#include "ops/at_position.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"
#include "prun/recurrent_state.hpp"

namespace prun {
namespace {

constexpr AttrDef rule_attrs[] = {int_attr("chunk", 64)};
constexpr AttrDef heads_attrs[] = {int_attr("key_dim", 1), int_attr("values", 1), real_attr("eps", 1e-6)};
constexpr AttrDef mixed_attrs[] = {int_attr("channels", 1), int_attr("values", 1)};

bool begins_alike(const OperandShape& a, const OperandShape& b, int dims) {
  bool alike = a.rank >= dims && b.rank >= dims;
  for (int d = 0; alike && d < dims; ++d) alike = a.dims[d] == b.dims[d];
  return alike;
}

// ------------------------------------------------------------------ the rule

// Says whether two values have the same positions and heads, but for the last dimension of heads, of which
// `more` has some times as many. `rank` is that of what has a number for each head.
bool shares_heads(const OperandShape& few, const OperandShape& more, int rank) {
  return rank >= 3 && begins_alike(few, more, rank - 1) &&
         few.dims[rank - 1].name == more.dims[rank - 1].name &&
         more.dims[rank - 1].extent % few.dims[rank - 1].extent == 0;
}

// Checks queries, keys, values, decays and shares in operands q to q + 4.
void check_rule(const OpShape& s, int q, const char* op) {
  const OperandShape &query = s.operand[q], &key = s.operand[q + 1], &value = s.operand[q + 2];
  const int rank = query.rank;
  bool fits = key.rank == rank && begins_alike(query, key, rank) && value.rank == rank &&
              shares_heads(query, value, rank - 1) && s.attrs[0].i >= 1;
  for (int i = q + 3; i <= q + 4; ++i)
    fits = fits && s.operand[i].rank == rank - 1 && begins_alike(s.operand[i], value, rank - 1) &&
           s.operand[i].dtype == OpShape::statistics(query.dtype);
  require(
      fits, op,
      " takes queries and keys [batch, seq, heads.., key_dim], values [batch, seq, heads.., value_dim] of "
      "as many heads or a multiple, decays and shares [batch, seq, heads..] of these in the type of "
      "statistics, and a chunk of at least one position");
}

// Marks what is not split: a state is of a whole head, of all positions.
void mark_rule(OpShape& s, int q) {
  const int rank = s.operand[q].rank;
  s.whole(q, 1, 2);
  s.whole(q, rank - 1, rank);
  s.whole(q + 2, rank - 1, rank);
}

// Sets the shape of the state behind operands q to q + 2.
void set_state(OpShape& s, int q, int state) {
  const OperandShape &query = s.operand[q], &value = s.operand[q + 2];
  const int rank = query.rank;
  Dim dims[max_dims] = {query.dims[0]};
  for (int d = 2; d < rank - 1; ++d) dims[d - 1] = query.dims[d];
  const DeltaState of{query.dims[rank - 1].extent, value.dims[rank - 2].extent / query.dims[rank - 2].extent,
                      value.dims[rank - 1].extent};
  dims[rank - 2] = {"state", of.numbers()};
  s.output(state, OpShape::statistics(query.dtype), dims, rank - 1);
  s.whole(state, rank - 2, rank - 1);
}

// Counts the products with states, of six numbers each, and those between positions of a chunk: keys with
// keys and queries, once for a group of values, and two for each value, one of which is half empty.
double rule_flops(const OpShape& s, int q) {
  const OperandShape &query = s.operand[q], &value = s.operand[q + 2];
  const auto chunk = static_cast<double>(std::min(s.attrs[0].i, query.dims[1].extent));
  const auto key = static_cast<double>(query.dims[query.rank - 1].extent);
  return static_cast<double>(value.elements()) * (6.0 * key + 3.0 * chunk) +
         4.0 * chunk * static_cast<double>(query.elements());
}

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
  static constexpr const AttrDef (&attrs)[1] = rule_attrs;
  static void rule(OpShape& s) {
    check_rule(s, 0, kind);
    check_documents(s, 0, 7, kind);
    s.like(5, 2);
    set_state(s, 0, 6);
    mark_rule(s, 0);
  }
  static void gradient(const Gradient& g) {
    g.inputs(
        {0, 1, 2, 3, 4}, "delta_rule_grad",
        {g.arrived(5), g.operand(0), g.operand(1), g.operand(2), g.operand(3), g.operand(4), g.operand(7)},
        {{"chunk", g.attr("chunk")}});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = rule_flops(s, 0); }
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
  static constexpr const AttrDef (&attrs)[1] = rule_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_rule(s, 0, kind);
    require_position(s.operand[0], s.operand[5], kind);
    require(s.operand[0].dims[1].extent <= recent_positions, kind, " takes ", recent_positions,
            " positions at most");
    s.like(7, 2);
    set_state(s, 0, 8);
    const OperandShape &kept = s.operand[6], &state = s.operand[8];
    require(kept.rank == state.rank && begins_alike(kept, state, state.rank) && kept.dtype == state.dtype,
            kind, " keeps a state as delta_rule gives it");
    mark_rule(s, 0);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = 2 * rule_flops(s, 0); }
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
  static constexpr const AttrDef (&attrs)[1] = rule_attrs;
  static void rule(OpShape& s) {
    check_rule(s, 1, kind);
    check_documents(s, 1, 6, kind);
    for (int i = 0; i < 5; ++i) s.like(7 + i, 1 + i);
    mark_rule(s, 1);
  }
  // Two products for each of forward's, and the scan of forward once more.
  static void cost(const OpShape& s, OpCost& c) {
    c.flops = 3 * rule_flops(s, 1);
    c.repeated = rule_flops(s, 1);
  }
};

// ------------------------------------------------------------------ what stands in front of it

// Sets operand `to` to `from` with another last dimension and, of the heads, `times` as many.
void set_last(OpShape& s, int from, int to, std::int64_t times, const Dim& last) {
  const OperandShape x = s.operand[from];
  s.like(to, from);
  s.operand[to].dims[x.rank - 2].extent *= times;
  s.operand[to].dims[x.rank - 1] = last;
  s.whole(from, x.rank - 1, x.rank);
  s.whole(last.name);
}

void set_mixed_parts(OpShape& s, int x, int first, const char* op) {
  const OperandShape& mixed = s.operand[x];
  const std::int64_t channels = s.attrs[0].i, values = s.attrs[1].i,
                     rest = mixed.dims[mixed.rank - 1].extent - channels;
  require(mixed.rank >= 4 && channels >= 1 && values >= 1 && rest >= values && rest % values == 0, op,
          " takes [batch, seq, heads.., mixed], with `channels` of them first and gates of `values` behind");
  set_last(s, x, first, 1, {"channels", channels});
  set_last(s, x, first + 1, values, {"value_dim", rest / values});
}

struct SplitMixed {
  static constexpr const char* kind = "split_mixed";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "what passes the convolution, and the gates, out of one projection";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}, {"gate", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = mixed_attrs;
  static void rule(OpShape& s) {
    set_mixed_parts(s, 0, 1, kind);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) { g.input(0, "join_mixed", {g.arrived(1), g.arrived(2)}); }
};

struct JoinMixed {
  static constexpr const char* kind = "join_mixed";
  static constexpr const char* help = "what split_mixed took apart, together: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"gate"}, {"x", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &y = s.operand[0], &gate = s.operand[1];
    const int rank = y.rank;
    require(rank >= 4 && gate.rank == rank && shares_heads(y, gate, rank - 1) && y.dtype == gate.dtype, kind,
            " takes [batch, seq, heads.., channels], and gates of as many heads or a multiple");
    const std::int64_t rest =
        gate.dims[rank - 2].extent / y.dims[rank - 2].extent * gate.dims[rank - 1].extent;
    s.whole(1, rank - 1, rank);
    set_last(s, 0, 2, 1, {"mixed", y.dims[rank - 1].extent + rest});
    s.pass_partial({0, 1});
  }
};

void set_delta_heads(OpShape& s, int x, int q, const char* op) {
  const OperandShape& from = s.operand[x];
  const std::int64_t key = s.attrs[0].i, values = s.attrs[1].i,
                     rest = from.dims[from.rank - 1].extent - 2 * key;
  require(from.rank >= 4 && key >= 1 && values >= 1 && rest >= values && rest % values == 0, op,
          " takes [batch, seq, heads.., channels]: a query, a key, and `values` values behind them");
  set_last(s, x, q, 1, {"key_dim", key});
  s.like(q + 1, q);
  set_last(s, x, q + 2, values, {"value_dim", rest / values});
}

struct DeltaHeads {
  static constexpr const char* kind = "delta_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "a query and a key, each x / sqrt(sum(x^2) + eps), and values of each head";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = heads_attrs;
  static void rule(OpShape& s) { set_delta_heads(s, 0, 1, kind); }
  static void gradient(const Gradient& g) {
    g.input(0, "delta_heads_grad", {g.arrived(1), g.arrived(2), g.arrived(3), g.operand(0)},
            {{"key_dim", g.attr("key_dim")}, {"values", g.attr("values")}, {"eps", g.attr("eps")}});
  }
};

struct DeltaHeadsGrad {
  static constexpr const char* kind = "delta_heads_grad";
  static constexpr const char* help = "dx of delta_heads";
  static constexpr OperandDef operands[] = {{"dq"}, {"dk"}, {"dv"}, {"x"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = heads_attrs;
  static void rule(OpShape& s) {
    OpShape forward = s;
    forward.operand[0] = s.operand[3];
    set_delta_heads(forward, 0, 1, kind);
    for (int i = 0; i < 3; ++i)
      require(s.operand[i].rank == forward.operand[1 + i].rank &&
                  begins_alike(s.operand[i], forward.operand[1 + i], s.operand[i].rank),
              kind, " takes gradients of what delta_heads gives");
    s.like(4, 3);
    s.whole(3, s.operand[3].rank - 1, s.operand[3].rank);
    s.whole(0, s.operand[0].rank - 1, s.operand[0].rank);
    s.whole(2, s.operand[2].rank - 1, s.operand[2].rank);
  }
};

// Checks numbers [batch, seq, heads.., 2 n] in operand x, and the two vectors of n times as many heads
// behind.
void check_gates(const OpShape& s, int x, const char* op) {
  const OperandShape &of = s.operand[x], &rate = s.operand[x + 1], &bias = s.operand[x + 2];
  const int heads = of.rank - 3;
  bool fits = heads >= 1 && rate.rank == heads && bias.rank == heads && rate.dtype == bias.dtype;
  for (int d = 0; fits && d < heads; ++d)
    fits =
        rate.dims[d] == bias.dims[d] && rate.dims[d].name == of.dims[2 + d].name &&
        2 * rate.dims[d].extent == of.dims[2 + d].extent * (d + 1 < heads ? 2 : of.dims[of.rank - 1].extent);
  require(fits, op, " takes [batch, seq, heads.., 2 n] and two vectors [heads..] of n times as many heads");
}

// Sets what a position has of each value head.
void set_gate(OpShape& s, int x, int to) {
  const OperandShape &of = s.operand[x], &rate = s.operand[x + 1];
  OperandShape gate = of;
  gate.dtype = OpShape::statistics(of.dtype);
  gate.rank = of.rank - 1;
  gate.dims[gate.rank - 1] = rate.dims[rate.rank - 1];
  gate.present = true;
  s.operand[to] = gate;
}

void mark_gates(OpShape& s, int x) { s.whole(x, s.operand[x].rank - 1, s.operand[x].rank); }

struct DeltaGates {
  static constexpr const char* kind = "delta_gates";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "beta = sigmoid(x[.., :n]), g = -exp(rate) softplus(x[.., n:] + bias): shares and decays of n values";
  static constexpr OperandDef operands[] = {
      {"x"}, {"rate"}, {"bias"}, {"g", Access::write}, {"beta", Access::write}};
  static void rule(OpShape& s) {
    check_gates(s, 0, kind);
    set_gate(s, 0, 3);
    set_gate(s, 0, 4);
    mark_gates(s, 0);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "delta_gates_input_grad",
            {g.arrived(3), g.arrived(4), g.operand(0), g.operand(1), g.operand(2)});
    g.weight({1, 2}, "delta_gates_weight_grad", {g.arrived(3), g.operand(0), g.operand(1), g.operand(2)});
  }
};

struct DeltaGatesInputGrad {
  static constexpr const char* kind = "delta_gates_input_grad";
  static constexpr const char* help = "dx of delta_gates";
  static constexpr OperandDef operands[] = {{"dg"},   {"dbeta"}, {"x"},
                                            {"rate"}, {"bias"},  {"dx", Access::write}};
  static void rule(OpShape& s) {
    check_gates(s, 2, kind);
    s.like(5, 2);
    mark_gates(s, 2);
  }
};

struct DeltaGatesWeightGrad {
  static constexpr const char* kind = "delta_gates_weight_grad";
  static constexpr const char* help = "drate and dbias of delta_gates";
  static constexpr OperandDef operands[] = {
      {"dg"}, {"x"}, {"rate"}, {"bias"}, {"drate", Access::update, true}, {"dbias", Access::update, true}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_gates(s, 1, kind);
    s.sum(0, 0, 2);
    mark_gates(s, 1);
  }
};

}  // namespace

std::vector<OpDef> delta_rule_ops() {
  return {op_def<DeltaRule>(),           op_def<DeltaRuleAt>(), op_def<DeltaRuleGrad>(),
          op_def<SplitMixed>(),          op_def<JoinMixed>(),   op_def<DeltaHeads>(),
          op_def<DeltaHeadsGrad>(),      op_def<DeltaGates>(),  op_def<DeltaGatesInputGrad>(),
          op_def<DeltaGatesWeightGrad>()};
}

}  // namespace prun
