#include <string>
#include <vector>

#include "base/require.hpp"
#include "prun/ops/collective.hpp"

namespace prun::ops {
namespace {

// Requires the exchange along `dim`, which operand `whole` has whole.
template <class Op>
void directly(RuleOf<Op> s, OperandOf<Op> from, OperandOf<Op> to, OperandOf<Op> whole) {
  const std::int64_t dim = s.integer("dim");
  require(dim >= 0 && dim < s[from].rank, "dimension ", dim, " of ", s[from].rank);
  s.like(to, from);
  s.whole(whole, static_cast<int>(dim), static_cast<int>(dim) + 1);
}

// Returns the name of the parts: blocks may themselves be exchanged, over an axis that comes later.
Name name_of_parts(const OperandShape& x) {
  const auto has = [&](const Name& name) {
    for (int i = 0; i < x.rank; ++i)
      if (x.dims[i].name == name) return true;
    return false;
  };
  Name name = "parts";
  for (int i = 2; has(name); ++i) name = Name("parts" + std::to_string(i));
  return name;
}

template <class Op>
void to_blocks(RuleOf<Op> s, OperandOf<Op> from, OperandOf<Op> to) {
  const OperandShape x = s[from];
  const std::int64_t dim = s.integer("dim"), parts = s.integer("parts");
  require(dim >= 0 && dim < x.rank && x.rank < max_dims && parts > 0 && x.dims[dim].extent % parts == 0,
          "dimension ", dim, " in ", parts, " blocks");
  Dim dims[max_dims] = {{name_of_parts(x), parts}};
  for (int i = 0; i < x.rank; ++i) dims[i + 1] = x.dims[i];
  dims[dim + 1].extent /= parts;
  s.output(to, x.dtype, dims, x.rank + 1);
  s.whole(from, static_cast<int>(dim), static_cast<int>(dim) + 1);
}

template <class Op>
void from_blocks(RuleOf<Op> s, OperandOf<Op> from, OperandOf<Op> to) {
  const OperandShape x = s[from];
  const std::int64_t dim = s.integer("dim");
  require(dim >= 0 && dim + 1 < x.rank, "dimension ", dim, " of blocks with rank ", x.rank);
  Dim dims[max_dims];
  for (int i = 1; i < x.rank; ++i) dims[i - 1] = x.dims[i];
  dims[dim].extent *= x.dims[0].extent;
  s.output(to, x.dtype, dims, x.rank - 1);
  s.whole(to, static_cast<int>(dim), static_cast<int>(dim) + 1);
}

}  // namespace

void AllReduce::rule(RuleOf<AllReduce> s) {
  s.like("y", "x");
  s.pass_partial({"x"});
}

void AllReduceMax::rule(RuleOf<AllReduceMax> s) {
  s.like("y", "x");
  s.pass_partial({"x"});
  s.pass_maximum({"x"});
}

void AllReduceUpdate::rule(RuleOf<AllReduceUpdate> s) { s.pass_partial({"x"}); }

void AllReduceMaxUpdate::rule(RuleOf<AllReduceMaxUpdate> s) { s.pass_maximum({"x"}); }

void AllGather::rule(RuleOf<AllGather> s) {
  if (s.integer("direct") != 0)
    directly(s, "x", "blocks", "blocks");
  else
    to_blocks(s, "x", "blocks");
}

void ReduceScatter::rule(RuleOf<ReduceScatter> s) {
  if (s.integer("direct") != 0)
    directly(s, "blocks", "y", "blocks");
  else
    from_blocks(s, "blocks", "y");
  s.pass_partial({"blocks"});
}

void ReduceScatterMax::rule(RuleOf<ReduceScatterMax> s) {
  if (s.integer("direct") != 0)
    directly(s, "blocks", "y", "blocks");
  else
    from_blocks(s, "blocks", "y");
  s.pass_maximum({"blocks"});
}

void AllToAll::rule(RuleOf<AllToAll> s) {
  if (s.integer("direct") != 0)
    between_values(s);
  else
    between_blocks(s);
  s.pass_partial({"blocks"});
  s.pass_maximum({"blocks"});
}

void AllToAll::between_values(RuleOf<AllToAll> s) {
  const std::int64_t dim = s.integer("dim"), to = s.integer("to"), rank = s["blocks"].rank;
  require(dim >= 0 && dim < rank && to >= 0 && to < rank && dim != to, "dimensions ", dim, " and ", to,
          " of ", rank);
  s.like("swapped", "blocks");
  s.whole(s["blocks"].dims[dim].name);
  s.whole(s["blocks"].dims[to].name);
}

void AllToAll::between_blocks(RuleOf<AllToAll> s) {
  const std::int64_t dim = s.integer("dim"), parts = s.integer("parts"), to = s.integer("to");
  OperandShape x = s["blocks"];
  const auto is_one = [&](std::int64_t d) { return d >= 0 && d + 1 < x.rank; };
  require(is_one(dim) && is_one(to) && dim != to && x.dims[0].extent == parts && parts > 0 &&
              x.dims[dim + 1].extent % parts == 0,
          "dimension ", to, " in ", parts, " blocks and ", dim, " in parts, of blocks with rank ", x.rank);
  x.dims[dim + 1].extent /= parts;
  x.dims[to + 1].extent *= parts;
  s.output("swapped", x.dtype, x.dims, x.rank);
  s.whole(x.dims[dim + 1].name);
  s.whole(x.dims[to + 1].name);
}

void Block::rule(RuleOf<Block> s) {
  to_blocks(s, "x", "blocks");
  s.pass_partial({"x"});
  s.pass_maximum({"x"});
}

void Unblock::rule(RuleOf<Unblock> s) {
  from_blocks(s, "blocks", "y");
  s.pass_partial({"blocks"});
  s.pass_maximum({"blocks"});
}

void Slice::rule(RuleOf<Slice> s) {
  s.like("y", "x");
  s.whole("x", static_cast<int>(s.integer("dim")), static_cast<int>(s.integer("dim")) + 1);
  s.pass_partial({"x"});
  s.pass_maximum({"x"});
}

void Gate::rule(RuleOf<Gate> s) { s.like("y", "x"); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> collective_ops() {
  using namespace ops;
  return {op_def<AllReduce>(),
          op_def<AllReduceMax>(),
          op_def<AllReduceUpdate>(),
          op_def<AllReduceMaxUpdate>(),
          op_def<AllGather>(),
          op_def<ReduceScatter>(),
          op_def<ReduceScatterMax>(),
          op_def<AllToAll>(),
          op_def<Block>(),
          op_def<Unblock>(),
          op_def<Slice>(),
          op_def<Gate>()};
}

}  // namespace prun
