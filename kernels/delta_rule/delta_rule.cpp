#include "prun/ops/delta_rule.hpp"

#include <algorithm>
#include <vector>

#include "base/require.hpp"
#include "delta_rule/shapes.hpp"
#include "prun/named_gradient.hpp"
#include "prun/recurrent_state.hpp"
#include "rules/at_position.hpp"
#include "rules/positions.hpp"
#include "rules/run_shapes.hpp"

namespace prun::ops {
namespace {

// Checks queries, keys, values, decays and shares.
void check_rule(const OperandShape& query, const OperandShape& key, const OperandShape& value,
                std::initializer_list<OperandShape> gates, std::int64_t chunk, const char* op) {
  const int rank = query.rank;
  bool fits = key.rank == rank && begins_alike(query, key, rank) && value.rank == rank &&
              shares_heads(query, value, rank - 1) && chunk >= 1;
  for (const OperandShape& gate : gates)
    fits = fits && gate.rank == rank - 1 && begins_alike(gate, value, rank - 1) &&
           gate.dtype == OpShape::statistics(query.dtype);
  require(
      fits, op,
      " takes queries and keys [batch, seq, heads.., key_dim], values [batch, seq, heads.., value_dim] of "
      "as many heads or a multiple, decays and shares [batch, seq, heads..] of these in the type of "
      "statistics, and a chunk of at least one position");
}

template <class Op>
void check_rule(const ShapeOf<Op>& s) {
  check_rule(s["q"], s["k"], s["v"], {s["g"], s["beta"]}, s.integer("chunk"), Op::kind);
}

template <class Op>
Runs runs_of(const ShapeOf<Op>& s) {
  return Runs::of(s["q"], s.integer("runs"), s.integer("zigzag"), s.integer("over"));
}

// Marks what is not split: a state is of a whole head,
template <class Op>
void mark_heads(const RuleOf<Op>& s) {
  const int rank = s["q"].rank;
  s.whole("q", rank - 1, rank);
  s.whole("v", rank - 1, rank);
}

// and of all positions, unless the op will be split into runs.
template <class Op>
void mark_rule(const RuleOf<Op>& s) {
  if (runs_of(s).rows == 0) s.whole("q", 1, 2);
  mark_heads(s);
}

// Sets the shape of the state behind queries, keys and values.
template <class Op>
void set_state(const RuleOf<Op>& s) {
  const OperandShape &query = s["q"], &value = s["v"];
  const int rank = query.rank;
  Dim dims[max_dims] = {query.dims[0]};
  for (int d = 2; d < rank - 1; ++d) dims[d - 1] = query.dims[d];
  const DeltaState of{query.dims[rank - 1].extent, value.dims[rank - 2].extent / query.dims[rank - 2].extent,
                      value.dims[rank - 1].extent};
  dims[rank - 2] = {"state", of.numbers()};
  s.output("state", OpShape::statistics(query.dtype), dims, rank - 1);
  s.whole("state", rank - 2, rank - 1);
}

// Sets the shapes of the gradients of queries, keys, values, decays and shares.
template <class Op>
void set_gradients(const RuleOf<Op>& s) {
  s.like("dq", "q");
  s.like("dk", "k");
  s.like("dv", "v");
  s.like("dg", "g");
  s.like("dbeta", "beta");
}

// Checks the states of all runs beside values.
template <class Op>
void check_states(const ShapeOf<Op>& s, OperandOf<Op> states) {
  const OperandShape &query = s["q"], &v = s["v"], &of = s[states];
  bool fits = of.rank == v.rank && of.dtype == OpShape::statistics(v.dtype) && of.dims[0] == v.dims[0];
  for (int d = 2; fits && d < v.rank - 1; ++d) fits = of.dims[d] == v.dims[d];
  fits = fits && of.dims[of.rank - 1].extent == query.dims[query.rank - 1].extent * v.dims[v.rank - 1].extent;
  require(fits, Op::kind,
          " takes a state of each run and value head, [batch, runs, heads.., key_dim * value_dim]");
}

template <class Op>
void mark_states(const RuleOf<Op>& s, OperandOf<Op> states) {
  const int rank = s[states].rank;
  s.whole(states, 1, 2);
  s.whole(states, rank - 1, rank);
}

double chunk_of(std::int64_t chunk, std::int64_t rows) { return static_cast<double>(std::min(chunk, rows)); }

double last_of(const OperandShape& x) { return static_cast<double>(x.dims[x.rank - 1].extent); }

// Counts the products with states, of six numbers each, and those between positions of a chunk: keys with
// keys and queries, once for a group of values, and two for each value, one of which is half empty. `rows`
// counts the positions of a run.
template <class Op>
double rule_flops(const ShapeOf<Op>& s, std::int64_t rows) {
  const OperandShape &query = s["q"], &value = s["v"];
  const double chunk = chunk_of(s.integer("chunk"), rows), key = last_of(query);
  return static_cast<double>(value.elements()) * (6.0 * key + 3.0 * chunk) +
         4.0 * chunk * static_cast<double>(query.elements());
}

template <class Op>
double rule_flops(const ShapeOf<Op>& s) {
  return rule_flops(s, s["q"].dims[1].extent);
}

// Is the ops around a rule in runs.
template <class Op>
class RuleInRuns {
 public:
  explicit RuleInRuns(const SplitOf<Op>& s) : s_(s), shape_(s.shape()), runs_(runs_of(shape_)) {
    if (s.dim() != shape_["q"].dims[1].name) runs_ = {};
  }

  bool any() const { return runs_.rows > 0; }
  std::array<AttrValue, 3> attrs() const {
    return {AttrValue{"chunk", of(shape_.integer("chunk"))},
            {"rows", of(runs_.rows)},
            {"chunks", of(runs_.chunks)}};
  }
  // Returns the maps of all runs, in their order; `dy` may be none.
  Id maps(Id dy) const {
    const auto [chunk, rows, chunks] = attrs();
    const auto [own] = s_.template create<1>(
        "delta_maps",
        {s_["k"], s_["v"], s_["g"], s_["beta"], dy == none ? none : s_["q"], dy, s_["documents"]},
        {chunk, rows, chunks});
    return s_.template create<1>("as_context", {own}, {{"chunk", runs_.chunks > 0 ? 1.0 : 0.0}, chunks})[0];
  }
  Id starts(Id maps, bool back) const {
    return s_.template create<1>("delta_starts", {maps},
                                 {{"key_dim", last_of(shape_["q"])},
                                  {"value_dim", last_of(shape_["v"])},
                                  {"back", back ? 1.0 : 0.0}})[0];
  }

 private:
  static double of(std::int64_t number) { return static_cast<double>(number); }

  const SplitOf<Op>& s_;
  ShapeOf<Op> shape_;
  Runs runs_;
};

// Counts, of a value head's position, the products with a state that is `width` wide and those that solve a
// chunk's system, which is half empty.
double scan_flops(double positions, double key, double width, double chunk) {
  return positions * width * (4 * key + chunk);
}

}  // namespace

void DeltaRule::rule(RuleOf<DeltaRule> s) {
  check_rule(s);
  check_documents(s, s.at("q"), s.at("documents"), kind);
  s.like("y", "v");
  set_state(s);
  mark_rule(s);
}

void DeltaRule::gradient(GradientOf<DeltaRule> g) {
  input_gradient<DeltaRuleGrad>(g, {"q", "k", "v", "g", "beta"}, {{"dy", g.arrived("y")}},
                                {{"chunk", g.attr("chunk")}});
}

// The state is for where text is made, one position after the other, and is not written.
void DeltaRule::split(SplitOf<DeltaRule> s) {
  const RuleInRuns runs(s);
  if (!runs.any()) return;
  const auto [chunk, rows, chunks] = runs.attrs();
  s.emit("delta_rule_runs",
         {s["q"], s["k"], s["v"], s["g"], s["beta"], runs.starts(runs.maps(none), false), s["documents"],
          s["y"]},
         {chunk, rows, chunks});
}

void DeltaRule::cost(ShapeOf<DeltaRule> s, OpCost& c) { c.flops = rule_flops(s); }

void DeltaRuleAt::rule(RuleOf<DeltaRuleAt> s) {
  check_rule(s);
  require_position(s["q"], s["position"], kind);
  require(s["q"].dims[1].extent <= recent_positions, kind, " takes ", recent_positions, " positions at most");
  s.like("y", "v");
  set_state(s);
  const OperandShape &kept = s["kept_state"], &state = s["state"];
  require(kept.rank == state.rank && begins_alike(kept, state, state.rank) && kept.dtype == state.dtype, kind,
          " keeps a state as delta_rule gives it");
  mark_rule(s);
}

void DeltaRuleAt::cost(ShapeOf<DeltaRuleAt> s, OpCost& c) { c.flops = 2 * rule_flops(s); }

void DeltaRuleGrad::rule(RuleOf<DeltaRuleGrad> s) {
  check_rule(s);
  check_documents(s, s.at("q"), s.at("documents"), kind);
  set_gradients(s);
  mark_rule(s);
}

void DeltaRuleGrad::split(SplitOf<DeltaRuleGrad> s) {
  const RuleInRuns runs(s);
  if (!runs.any()) return;
  const auto [chunk, rows, chunks] = runs.attrs();
  const Id maps = runs.maps(s["dy"]), starts = runs.starts(maps, false), ends = runs.starts(maps, true);
  s.emit("delta_rule_runs_grad",
         {s["dy"], s["q"], s["k"], s["v"], s["g"], s["beta"], starts, ends, s["documents"], s["dq"], s["dk"],
          s["dv"], s["dg"], s["dbeta"]},
         {chunk, rows, chunks});
}

// Two products for each of forward's, and the scan of forward once more.
void DeltaRuleGrad::cost(ShapeOf<DeltaRuleGrad> s, OpCost& c) {
  c.flops = 3 * rule_flops(s);
  c.repeated = rule_flops(s);
}

void DeltaMaps::rule(RuleOf<DeltaMaps> s) {
  const OperandShape &k = s["k"], &v = s["v"], &q = s["q"], &dy = s["dy"];
  const std::int64_t rows = s.integer("rows");
  check_rule(k, k, v, {s["g"], s["beta"]}, s.integer("chunk"), kind);
  check_rows(s, s.at("k"), rows, kind);
  check_documents(s, s.at("k"), s.at("documents"), kind);
  require(q.present == dy.present && (!q.present || (q.rank == k.rank && begins_alike(q, k, k.rank) &&
                                                     dy.rank == v.rank && begins_alike(dy, v, v.rank))),
          kind, " takes queries as keys are and gradients as values are, or neither");
  const std::int64_t key = k.dims[k.rank - 1].extent, value = v.dims[v.rank - 1].extent;
  s.like("maps", "g");
  OperandShape& maps = s["maps"];
  maps.dims[1].extent /= rows;
  maps.dims[maps.rank++] = {"map", key * (key + (q.present ? 2 : 1) * value)};
  s.whole("map");
  s.whole("k", k.rank - 1, k.rank);
  s.whole("v", v.rank - 1, v.rank);
}

void DeltaMaps::cost(ShapeOf<DeltaMaps> s, OpCost& c) {
  const OperandShape &k = s["k"], &v = s["v"];
  const double key = last_of(k), value = last_of(v), chunk = chunk_of(s.integer("chunk"), s.integer("rows")),
               positions = static_cast<double>(v.elements()) / value;
  c.flops = scan_flops(positions, key, key + value, chunk) + 2 * chunk * static_cast<double>(k.elements());
  if (s.has("q"))
    c.flops += positions * value * (6 * key + 3 * chunk) + 2 * chunk * static_cast<double>(k.elements());
  c.repeated = c.flops;  // the rule without runs is as much work for the model
}

void DeltaStarts::rule(RuleOf<DeltaStarts> s) {
  const OperandShape& maps = s["maps"];
  const std::int64_t key = s.integer("key_dim"), value = s.integer("value_dim"),
                     least = key * (key + (s.integer("back") != 0 ? 2 : 1) * value);
  require(maps.rank >= 4 && key >= 1 && value >= 1 && maps.dims[maps.rank - 1].extent >= least, kind,
          " takes the maps [batch, runs, heads.., map] of delta_maps");
  s.like("starts", "maps");
  s["starts"].dims[maps.rank - 1] = {"state", key * value};
  s.whole("maps", 1, 2);
  s.whole("maps", maps.rank - 1, maps.rank);
  s.whole("state");
}

void DeltaStarts::cost(ShapeOf<DeltaStarts> s, OpCost& c) {
  const OperandShape& maps = s["maps"];
  const std::int64_t key = s.integer("key_dim"), value = s.integer("value_dim");
  c.flops = 2 * static_cast<double>(maps.elements()) / last_of(maps) * static_cast<double>(key * key * value);
  c.repeated = c.flops;
}

void DeltaRuleRuns::rule(RuleOf<DeltaRuleRuns> s) {
  check_rule(s);
  check_rows(s, s.at("q"), s.integer("rows"), kind);
  check_states(s, "starts");
  check_documents(s, s.at("q"), s.at("documents"), kind);
  s.like("y", "v");
  mark_heads(s);
  mark_states(s, "starts");
}

void DeltaRuleRuns::cost(ShapeOf<DeltaRuleRuns> s, OpCost& c) { c.flops = rule_flops(s, s.integer("rows")); }

void DeltaRuleRunsGrad::rule(RuleOf<DeltaRuleRunsGrad> s) {
  check_rule(s);
  check_rows(s, s.at("q"), s.integer("rows"), kind);
  for (const auto states : OperandsOf<DeltaRuleRunsGrad>{"starts", "ends"}) {
    check_states(s, states);
    mark_states(s, states);
  }
  check_documents(s, s.at("q"), s.at("documents"), kind);
  set_gradients(s);
  mark_heads(s);
}

void DeltaRuleRunsGrad::cost(ShapeOf<DeltaRuleRunsGrad> s, OpCost& c) {
  c.flops = 3 * rule_flops(s, s.integer("rows"));
  c.repeated = rule_flops(s, s.integer("rows"));
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> delta_rule_ops() {
  using namespace ops;
  return {op_def<DeltaRule>(),   op_def<DeltaRuleAt>(),   op_def<DeltaRuleGrad>(),    op_def<DeltaMaps>(),
          op_def<DeltaStarts>(), op_def<DeltaRuleRuns>(), op_def<DeltaRuleRunsGrad>()};
}

}  // namespace prun
