// These ops exchange between ranks: the placement pass inserts them, and a comm plugin runs them. Over whole
// values they change nothing; they change a value's placement on one mesh axis (attribute `axis`, its
// number).
#include <string>
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef axis_attr[] = {int_attr("axis", 0)};

struct AllReduce {
  static constexpr const char* kind = "all_reduce";
  static constexpr const char* help = "partial sums of an axis become their sum everywhere";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr OpExchange exchange{CommKind::all_reduce};
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
  }
};

// Takes the maximum of what is no sum: the largest logit of a row whose logits are split.
struct AllReduceMax {
  static constexpr const char* kind = "all_reduce_max";
  static constexpr const char* help = "what each rank of an axis found largest becomes the largest of all";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr OpExchange exchange{CommKind::all_reduce, Reduction::max};
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

// Sums what is accumulated in place: gradients, the loss, the sum of squares.
struct AllReduceUpdate {
  static constexpr const char* kind = "all_reduce_update";
  static constexpr const char* help = "the same in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::update;
  static constexpr OpExchange exchange{CommKind::all_reduce};
  static void rule(OpShape& s) { s.pass_partial({0}); }
};

struct AllReduceMaxUpdate {
  static constexpr const char* kind = "all_reduce_max_update";
  static constexpr const char* help = "what each rank of an axis found largest becomes the largest, in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::update;
  static constexpr OpExchange exchange{CommKind::all_reduce, Reduction::max};
  static void rule(OpShape& s) { s.pass_maximum({0}); }
};

// Exchanges along a dimension work on blocks: x[lead.., d, rest..] as [parts, lead.., d / parts, rest..],
// with one block for each coordinate of the axis. `dim` is the number of d in x, `parts` the extent of the
// axis.
constexpr AttrDef block_attrs[] = {int_attr("axis", 0), int_attr("dim", 0), int_attr("parts", 1)};

// With `direct` there are no blocks: x[lead.., d, rest..] as it is, exchanged for each place of lead.
constexpr AttrDef exchange_attrs[] = {block_attrs[0], block_attrs[1], block_attrs[2], int_attr("direct", 0)};

bool is_direct(const OpShape& s) { return s.attrs[3].i != 0; }

// Requires the exchange along `dim`, which operand `whole` has whole.
void directly(OpShape& s, int whole) {
  const std::int64_t dim = s.attrs[1].i;
  require(dim >= 0 && dim < s.operand[0].rank, "dimension ", dim, " of ", s.operand[0].rank);
  s.like(1, 0);
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

void to_blocks(OpShape& s, int from, int to) {
  const OperandShape x = s.operand[from];
  const std::int64_t dim = s.attrs[1].i, parts = s.attrs[2].i;
  require(dim >= 0 && dim < x.rank && x.rank < max_dims && parts > 0 && x.dims[dim].extent % parts == 0,
          "dimension ", dim, " in ", parts, " blocks");
  Dim dims[max_dims] = {{name_of_parts(x), parts}};
  for (int i = 0; i < x.rank; ++i) dims[i + 1] = x.dims[i];
  dims[dim + 1].extent /= parts;
  s.output(to, x.dtype, dims, x.rank + 1);
  s.whole(from, static_cast<int>(dim), static_cast<int>(dim) + 1);
}

void from_blocks(OpShape& s, int from, int to) {
  const OperandShape x = s.operand[from];
  const std::int64_t dim = s.attrs[1].i;
  require(dim >= 0 && dim + 1 < x.rank, "dimension ", dim, " of blocks with rank ", x.rank);
  Dim dims[max_dims];
  for (int i = 1; i < x.rank; ++i) dims[i - 1] = x.dims[i];
  dims[dim].extent *= x.dims[0].extent;
  s.output(to, x.dtype, dims, x.rank - 1);
  s.whole(to, static_cast<int>(dim), static_cast<int>(dim) + 1);
}

struct AllGather {
  static constexpr const char* kind = "all_gather";
  static constexpr const char* help = "the parts of a dimension come together, as blocks unless `direct`";
  static constexpr OperandDef operands[] = {{"x"}, {"blocks", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::all_gather};
  static void rule(OpShape& s) {
    if (is_direct(s))
      directly(s, 1);
    else
      to_blocks(s, 0, 1);
  }
};

struct ReduceScatter {
  static constexpr const char* kind = "reduce_scatter";
  static constexpr const char* help =
      "partial sums, as blocks unless `direct`, become the sum of this coordinate's block";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::reduce_scatter};
  static void rule(OpShape& s) {
    if (is_direct(s))
      directly(s, 0);
    else
      from_blocks(s, 0, 1);
    s.pass_partial({0});
  }
};

struct ReduceScatterMax {
  static constexpr const char* kind = "reduce_scatter_max";
  static constexpr const char* help =
      "of what each rank found largest, as blocks unless `direct`, this coordinate's block of the largest";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::reduce_scatter, Reduction::max};
  static void rule(OpShape& s) {
    if (is_direct(s))
      directly(s, 0);
    else
      from_blocks(s, 0, 1);
    s.pass_maximum({0});
  }
};

// Changes the dimension that a value is sharded on: each rank has `to` whole for its part of `dim`, and gets
// `dim` whole for its part of `to`. With `direct` it lies as its blocks would.
struct AllToAll {
  static constexpr const char* kind = "all_to_all";
  static constexpr const char* help =
      "blocks along `to` of a part of `dim` become blocks along `dim`, as they lie if `direct`";
  static constexpr OperandDef operands[] = {{"blocks"}, {"swapped", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0), int_attr("dim", 0), int_attr("parts", 1),
                                      int_attr("to", 1), later(int_attr("direct", 0))};
  static constexpr OpExchange exchange{CommKind::all_to_all};
  static void rule(OpShape& s) {
    if (s.attrs[4].i != 0)
      between_values(s);
    else
      between_blocks(s);
    s.pass_partial({0});
    s.pass_maximum({0});
  }

 private:
  static void between_values(OpShape& s) {
    const std::int64_t dim = s.attrs[1].i, to = s.attrs[3].i, rank = s.operand[0].rank;
    require(dim >= 0 && dim < rank && to >= 0 && to < rank && dim != to, "dimensions ", dim, " and ", to,
            " of ", rank);
    s.like(1, 0);
    s.whole(s.operand[0].dims[dim].name);
    s.whole(s.operand[0].dims[to].name);
  }
  static void between_blocks(OpShape& s) {
    const std::int64_t dim = s.attrs[1].i, parts = s.attrs[2].i, to = s.attrs[3].i;
    OperandShape x = s.operand[0];
    const auto is_one = [&](std::int64_t d) { return d >= 0 && d + 1 < x.rank; };
    require(is_one(dim) && is_one(to) && dim != to && x.dims[0].extent == parts && parts > 0 &&
                x.dims[dim + 1].extent % parts == 0,
            "dimension ", to, " in ", parts, " blocks and ", dim, " in parts, of blocks with rank ", x.rank);
    x.dims[dim + 1].extent /= parts;
    x.dims[to + 1].extent *= parts;
    s.output(1, x.dtype, x.dims, x.rank);
    s.whole(x.dims[dim + 1].name);
    s.whole(x.dims[to + 1].name);
  }
};

struct Block {
  static constexpr const char* kind = "block";
  static constexpr const char* help = "x as one block after another";
  static constexpr OperandDef operands[] = {{"x"}, {"blocks", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(OpShape& s) {
    to_blocks(s, 0, 1);
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

struct Unblock {
  static constexpr const char* kind = "unblock";
  static constexpr const char* help = "blocks side by side again";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(OpShape& s) {
    from_blocks(s, 0, 1);
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

// Splits what is the same everywhere without an exchange: each rank keeps its part.
struct Slice {
  static constexpr const char* kind = "slice";
  static constexpr const char* help = "this coordinate's part of dimension `dim`";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.whole(0, static_cast<int>(s.attrs[1].i), static_cast<int>(s.attrs[1].i) + 1);
    s.pass_partial({0});
    s.pass_maximum({0});
  }
};

// Makes what is the same everywhere a partial sum: it counts once.
struct Gate {
  static constexpr const char* kind = "gate";
  static constexpr const char* help = "x where the runtime number `open` is not 0, else zeros";
  static constexpr OperandDef operands[] = {{"x"}, {"open"}, {"y", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

}  // namespace

std::vector<OpDef> collective_ops() {
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
