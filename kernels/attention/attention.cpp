#include "prun/ops/attention.hpp"
#include "prun/named_gradient.hpp"

#include <algorithm>
#include <vector>

#include "rules/at_position.hpp"
#include "rules/packed_heads.hpp"
#include "rules/positions.hpp"

namespace prun::ops {
namespace {

// Checks what says which weights are dropped: all heads' streams are told apart by 16 bits.
template <class Op>
void check_drops(const RuleOf<Op>& s) {
  const OperandShape &queries = s["q"], &numbers = s["samples"], &seed = s["seed"];
  const double chance = s.real("p");
  require(chance >= 0 && chance < 1, Op::kind, ": p lies in [0, 1)");
  if (chance == 0) return;
  require(numbers.present && numbers.rank == 1 && numbers.dtype == DType::i64 &&
              numbers.dims[0] == queries.dims[0] && seed.present && seed.dtype == DType::f64,
          Op::kind, " that drops weights takes i64 samples [batch] and a seed");
  const std::int64_t stream = s.integer("stream"), heads = queries.dims[2].extent * queries.dims[3].extent;
  require(stream >= 0 && stream % 65536 + heads <= 65536, Op::kind,
          " drops weights of heads whose streams come to 65536 at most");
  s.whole("q", 3, 4);
}

template <class Op>
void check_sink(const ShapeOf<Op>& s, const OperandShape& q) {
  const OperandShape& given = s["sink"];
  require(!given.present || (given.rank == 2 && given.dims[0] == q.dims[2] && given.dims[1] == q.dims[3] &&
                             given.dtype == q.dtype),
          Op::kind, " takes sinks [heads, queries] of the type of its queries");
}

void check_bound(double softcap, const char* op) {
  require(softcap >= 0, op, " takes a softcap from 0 on, not ", softcap);
}

template <class Op>
void check_mask(const ShapeOf<Op>& s) {
  check_bound(s.real("softcap"), Op::kind);
  require(s.integer("window") >= 0, Op::kind, " takes a window from 0 on");
}

template <class Op>
bool is_causal(const ShapeOf<Op>& s) {
  return s.integer("causal") != 0;
}

// Counts the two products of forward; a causal mask halves them.
double attention_flops(const OperandShape& q, std::int64_t keys, bool causal) {
  return 4.0 * static_cast<double>(q.elements()) * static_cast<double>(keys) * (causal ? 0.5 : 1.0);
}

// Counts them with all keys of the sequence; a window leaves a band of them.
template <class Op>
double attention_flops(const ShapeOf<Op>& s, const OperandShape& q) {
  const double seq = static_cast<double>(q.dims[1].extent), window = static_cast<double>(s.integer("window"));
  if (window == 0 || window >= seq) return attention_flops(q, q.dims[1].extent, is_causal(s));
  const double band =
      attention_flops(q, q.dims[1].extent, false) * (window - 0.5 * window * window / seq) / seq;
  return is_causal(s) ? band : 2 * band;
}

// Sets the shape of the log of the sum of exponentials of queries q.
template <class Op>
void set_lse(const RuleOf<Op>& s, const OperandShape& q) {
  const Dim dims[] = {q.dims[0], q.dims[2], q.dims[3], q.dims[1]};
  s.output("lse", OpShape::statistics(q.dtype), dims, 4);
}

// Checks documents beside queries. They grow along the sequence, and later keys are masked anyway.
template <class Op>
void check_apart_documents(const ShapeOf<Op>& s, OperandOf<Op> q) {
  check_documents(s, s.at(q), s.at("documents"), "attention");
  require(!s.has("documents") || s.integer("causal") == 1,
          "attention keeps documents apart under a causal mask only");
}

// Attention's own gradient reads y and lse, in which the sink has its share already: it stays as it is.
template <class Op>
void sink_gradient(const GradientOf<Op>& g) {
  input_gradient<AttentionSinkGrad>(g, {"sink"}, {{"dy", g.arrived("y")}});
}

// Returns how many chunks of queries there are beside keys that begin ahead of each.
template <class Op>
std::int64_t chunks_of(const ShapeOf<Op>& s) {
  return (s["all_k"].dims[1].extent - s["q"].dims[1].extent) / s.integer("ahead");
}

// Returns how many positions a sequence has.
template <class Op>
std::int64_t positions_of(const ShapeOf<Op>& s) {
  return s.integer("ahead") == 0 ? s["all_k"].dims[1].extent
                                 : s["q"].dims[1].extent / chunks_of(s) * s.integer("parts");
}

// Counts a part of the queries and all keys: the mean share under a mask, which is exact if each part has a
// chunk of front and back.
template <class Op>
double across_flops(const ShapeOf<Op>& s) {
  const OperandShape& q = s["q"];
  const std::int64_t all = positions_of(s);
  const double keys = static_cast<double>(all), window = static_cast<double>(s.integer("window"));
  if (window == 0 || window >= keys) return attention_flops(q, all, is_causal(s));
  return attention_flops(q, all, false) * (window - 0.5 * window * window / keys) / keys;
}

// Says where queries, keys and values of all positions are.
template <class Op>
Apart across_heads(const ShapeOf<Op>& s) {
  return {s.at("q"), s.at("all_k"), s.at("all_v")};
}

// Checks keys and values that begin ahead of each chunk of queries. Their sequence is split as that of the
// queries.
template <class Op>
void check_ahead(const RuleOf<Op>& s) {
  const char* const op = Op::kind;
  const Dim &queries = s["q"].dims[1], &keys = s["all_k"].dims[1];
  const std::int64_t window = s.integer("window"), ahead = s.integer("ahead"),
                     more = keys.extent - queries.extent;
  require(ahead > 0 && window > 0 && window <= ahead + 1 && s.integer("causal") == 1, op,
          " takes keys from so many positions ahead of each chunk as its window reaches back, under a mask");
  require(keys.name == queries.name && more > 0 && more % ahead == 0 && queries.extent % (more / ahead) == 0,
          op, " takes keys of each chunk of the queries and of ", ahead, " positions ahead of it");
  OpShape alike = s;
  const RuleOf<Op> other(alike);
  for (const auto name : OperandsOf<Op>{"all_k", "all_v"})
    if (other[name].dims[1] == keys) other[name].dims[1] = queries;
  check_apart(alike, op, across_heads(s));
}

// Checks keys and values of all positions beside queries, whose sequence may be split then. Without a mask
// they may be those of another sequence, of the same length.
template <class Op>
void check_all(const RuleOf<Op>& s) {
  const char* const op = Op::kind;
  const OperandShape& queries = s["q"];
  const Dim all = s["all_k"].dims[1];
  OpShape alike = s;
  const RuleOf<Op> renamed(alike);
  for (const auto name : OperandsOf<Op>{"all_k", "all_v"})
    if (renamed[name].rank > 1 && renamed[name].dims[1].name == all.name) {
      Dim& keys = renamed[name].dims[1];
      const bool other = s.integer("causal") == 0 && keys.extent == all.extent;
      keys = {queries.dims[1].name, other ? queries.dims[1].extent : keys.extent};
    }
  const std::int64_t window = s.integer("window");
  require(window == 0 || (window > 0 && s.integer("causal") == 1), op,
          " takes a window from 0 on, and under a causal mask only");
  require(all.name != queries.dims[1].name, op,
          " takes keys and values whose positions have a dimension of their own");
  check_apart(alike, op, across_heads(s));
  s.whole("all_k", 1, 2);
}

template <class Op>
void check_across(const RuleOf<Op>& s) {
  check_bound(s.real("softcap"), Op::kind);
  if (s.integer("ahead") == 0)
    check_all(s);
  else
    check_ahead(s);
  // On another axis heads come before a part of the positions, which queries would otherwise keep.
  s.prefer(s["q"].dims[2].name);
  s.prefer(s["q"].dims[3].name);
  s.whole("q", 4, 5);
}

}  // namespace

void AttentionSinkGrad::rule(RuleOf<AttentionSinkGrad> s) {
  const OperandShape &dy = s["dy"], &y = s["y"], &lse = s["lse"];
  bool fits = y.rank == 5 && dy.rank == 5 && dy.dtype == y.dtype && lse.rank == 4 && s.has("sink") &&
              lse.dtype == OpShape::statistics(y.dtype);
  for (int d = 0; fits && d < 5; ++d) fits = dy.dims[d] == y.dims[d];
  constexpr int of_lse[] = {0, 2, 3, 1};
  for (int d = 0; fits && d < 4; ++d) fits = lse.dims[d] == y.dims[of_lse[d]];
  require(fits, kind, " takes dy and y [batch, seq, heads, queries, head_dim] and lse as attention has them");
  check_sink(s, y);
  s.like("dsink", "sink");
  s.sum("dy", 0, 2);
  s.whole("dy", 4, 5);
}

void AttentionSinkGrad::cost(ShapeOf<AttentionSinkGrad> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(s["dy"].elements());
}

void Attention::rule(RuleOf<Attention> s) {
  check_apart(s, kind, {s.at("q"), s.at("k"), s.at("v")});
  check_mask(s);
  s.like("y", "q");
  set_lse(s, s["q"]);
  check_apart_documents(s, "q");
  check_sink(s, s["q"]);
  check_drops(s);
  s.whole("q", 1, 2);
  s.whole("q", 4, 5);
}

void Attention::gradient(GradientOf<Attention> g) {
  input_gradient<AttentionGrad>(g, {"q", "k", "v"}, {{"dy", g.arrived("y")}},
                                {{"causal", g.attr("causal")},
                                 {"window", g.attr("window")},
                                 {"softcap", g.attr("softcap")},
                                 {"p", g.attr("p")},
                                 {"stream", g.attr("stream")}});
  sink_gradient(g);
}

void Attention::cost(ShapeOf<Attention> s, OpCost& c) { c.flops = attention_flops(s, s["q"]); }

void AttentionAt::rule(RuleOf<AttentionAt> s) {
  check_apart(s, kind, {s.at("q"), s.at("k"), s.at("v")});
  require_position(s["q"], s["position"], kind);
  require(s.integer("causal") == 1, "attention_at is causal: what lies behind a position is not there yet");
  require(s.real("p") == 0, "attention_at drops nothing");
  check_mask(s);
  check_kept(s, "kept_k", "k");
  check_kept(s, "kept_v", "v");
  check_sink(s, s["q"]);
  s.like("y", "q");
  set_lse(s, s["q"]);
  s.whole("q", 1, 2);
  s.whole("q", 3, 5);
}

void AttentionAt::cost(ShapeOf<AttentionAt> s, OpCost& c) {
  const double half = 0.5 * static_cast<double>(s["kept_k"].dims[1].extent),
               window = static_cast<double>(s.integer("window"));
  c.flops = 4.0 * static_cast<double>(s["q"].elements()) * (window > 0 ? std::min(window, half) : half);
}

void AttentionGrad::rule(RuleOf<AttentionGrad> s) {
  check_apart(s, kind, {s.at("q"), s.at("k"), s.at("v")});
  check_mask(s);
  check_apart_documents(s, "q");
  check_drops(s);
  s.like("dq", "q");
  s.like("dk", "k");
  s.like("dv", "v");
  s.whole("q", 1, 2);
  s.sum("q", 3, 4);
  s.whole("q", 4, 5);
}

void AttentionGrad::cost(ShapeOf<AttentionGrad> s, OpCost& c) { c.flops = 2.5 * attention_flops(s, s["q"]); }

void AttentionPacked::rule(RuleOf<AttentionPacked> s) {
  const OperandShape q = queries_of(s, kind, s.at("x"));
  check_mask(s);
  s["y"] = q;
  set_lse(s, q);
  check_apart_documents(s, "x");
  check_sink(s, q);
  s.whole("x", 1, 2);
}

void AttentionPacked::cost(ShapeOf<AttentionPacked> s, OpCost& c) { c.flops = attention_flops(s, s["y"]); }

void AttentionPackedGrad::rule(RuleOf<AttentionPackedGrad> s) {
  queries_of(s, kind, s.at("x"));
  check_apart_documents(s, "x");
  check_mask(s);
  s.like("dx", "x");
  s.whole("x", 1, 2);
}

void AttentionPackedGrad::cost(ShapeOf<AttentionPackedGrad> s, OpCost& c) {
  c.flops = 2.5 * attention_flops(s, s["y"]);
}

void AttentionAcross::rule(RuleOf<AttentionAcross> s) {
  check_across(s);
  check_drops(s);
  s.like("y", "q");
  set_lse(s, s["q"]);
  check_apart_documents(s, "q");
  check_sink(s, s["q"]);
}

void AttentionAcross::gradient(GradientOf<AttentionAcross> g) {
  input_gradient<AttentionAcrossGrad>(g, {"q", "all_k", "all_v"}, {{"dy", g.arrived("y")}},
                                      {{"causal", g.attr("causal")},
                                       {"window", g.attr("window")},
                                       {"chunk", g.attr("chunk")},
                                       {"chunks", g.attr("chunks")},
                                       {"ahead", g.attr("ahead")},
                                       {"parts", g.attr("parts")},
                                       {"softcap", g.attr("softcap")},
                                       {"p", g.attr("p")},
                                       {"stream", g.attr("stream")}});
  sink_gradient(g);
}

void AttentionAcross::cost(ShapeOf<AttentionAcross> s, OpCost& c) { c.flops = across_flops(s); }

void AttentionAcrossGrad::rule(RuleOf<AttentionAcrossGrad> s) {
  check_across(s);
  check_drops(s);
  check_apart_documents(s, "q");
  s.like("dq", "q");
  s.like("all_dk", "all_k");
  s.like("all_dv", "all_v");
  if (s.integer("ahead") == 0) s.sum("q", 1, 2);
  s.sum("q", 3, 4);
}

void AttentionAcrossGrad::cost(ShapeOf<AttentionAcrossGrad> s, OpCost& c) { c.flops = 2.5 * across_flops(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> attention_ops() {
  using namespace ops;
  return {op_def<Attention>(),           op_def<AttentionAt>(),         op_def<AttentionGrad>(),
          op_def<AttentionPacked>(),     op_def<AttentionPackedGrad>(), op_def<AttentionAcross>(),
          op_def<AttentionAcrossGrad>(), op_def<AttentionSinkGrad>()};
}

}  // namespace prun
