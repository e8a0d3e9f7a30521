// Defines ops that bring a part of a sequence the positions in front of it, its halo, where an op behind it
// reads no further back (program/halo.cpp). Sequences are cut into chunks of `rows` positions, of which a
// rank has one or more. halo_tails takes the last `reach` positions of each chunk, which ranks gather in the
// order of positions (as_context), and join_halo puts in front of each chunk those of the one before it.
// part_halo and add_tails are the gradients' way back.
#include <algorithm>
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef tail_attrs[] = {int_attr("rows", 1), int_attr("reach", 1)};
// A sequence has `parts` chunks. With `chunks`, as many, they lie in the order of prun/sequence_order.hpp.
constexpr AttrDef halo_attrs[] = {tail_attrs[0], tail_attrs[1], int_attr("parts", 1), int_attr("chunks", 0)};

// Sets operand `to` to `from` with `taken` positions in place of each `given` ones. Heads are split before
// sequences, of which every axis that splits them has whole chunks.
void set_rows(OpShape& s, const char* op, int from, int to, std::int64_t given, std::int64_t taken) {
  const OperandShape x = s.operand[from];
  const std::int64_t rows = s.attrs[0].i, reach = s.attrs[1].i;
  require(rows > reach && reach > 0, op, " takes a reach from 1 on that is shorter than a chunk's rows");
  require(x.rank >= 3 && x.dims[1].extent % given == 0, op, " takes [batch, sequence, ...] of whole chunks");
  s.like(to, from);
  s.operand[to].dims[1].extent = x.dims[1].extent / given * taken;
  s.prefer(x.dims[2].name);
}

// Sets the tails of all chunks, whose positions have a dimension of their own.
void set_halo(OpShape& s, int x, int halo) {
  s.like(halo, x);
  s.operand[halo].dims[1] = {"context", s.attrs[2].i * s.attrs[1].i};
  s.whole(halo, 1, 2);
}

struct HaloTails {
  static constexpr const char* kind = "halo_tails";
  static constexpr const char* help = "the last positions of each chunk of a sequence";
  static constexpr OperandDef operands[] = {{"x"}, {"tails", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 0, 1, s.attrs[0].i, s.attrs[1].i);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "add_tails", {none, g.arrived(1)}, {{"rows", g.attr("rows")}, {"reach", g.attr("reach")}});
  }
};

struct AddTails {
  static constexpr const char* kind = "add_tails";
  static constexpr const char* help =
      "x with tails added to the last positions of each chunk: their gradient";
  static constexpr OperandDef operands[] = {{"x", Access::read, true}, {"tails"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 1, 2, s.attrs[1].i, s.attrs[0].i);
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    g.pass(0, g.arrived(2));
    g.input(1, "halo_tails", {g.arrived(2)}, {{"rows", g.attr("rows")}, {"reach", g.attr("reach")}});
  }
};

struct JoinHalo {
  static constexpr const char* kind = "join_halo";
  static constexpr const char* help =
      "each chunk of a sequence behind the tail of the one before it, or zeros";
  static constexpr OperandDef operands[] = {{"x"}, {"halo"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = halo_attrs;
  static void rule(OpShape& s) {
    const OperandShape tails = s.operand[1];
    set_rows(s, kind, 0, 2, s.attrs[0].i, s.attrs[0].i + s.attrs[1].i);
    set_halo(s, 0, 1);
    require(tails.rank == s.operand[1].rank && tails.dtype == s.operand[1].dtype &&
                std::equal(tails.dims, tails.dims + tails.rank, s.operand[1].dims),
            kind, " takes x, and the tails of all chunks [batch, context, ...]");
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    g.inputs({0, 1}, "part_halo", {g.arrived(2)},
             {{"rows", g.attr("rows")},
              {"reach", g.attr("reach")},
              {"parts", g.attr("parts")},
              {"chunks", g.attr("chunks")}});
  }
};

// A rank has the gradients of those tails that its own chunks have read; the others are zero.
struct PartHalo {
  static constexpr const char* kind = "part_halo";
  static constexpr const char* help = "what join_halo has put together, apart: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"x", Access::write}, {"halo", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = halo_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 0, 1, s.attrs[0].i + s.attrs[1].i, s.attrs[0].i);
    set_halo(s, 1, 2);
    s.sum(0, 1, 2);
    s.pass_partial({0});
  }
};

}  // namespace

std::vector<OpDef> halo_ops() {
  return {op_def<HaloTails>(), op_def<AddTails>(), op_def<JoinHalo>(), op_def<PartHalo>()};
}

}  // namespace prun
