// Defines ops that bring chunks of a sequence the positions in front of them, their halo, where an op behind
// reads no further back (program/halo.cpp). Sequences are cut into chunks, of which a rank has one or more.
// halo_tails takes the last `reach` positions of each chunk; shift brings each rank those of the chunks that
// come `distance` before its own, where another rank has them; join_halo puts them in front, and those that
// the rank has itself. A halo longer than a chunk is put together piece by piece, the nearest first.
// part_halo and add_tails are the gradients' way back.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef tail_attrs[] = {int_attr("rows", 1), int_attr("reach", 1)};
// A sequence has `parts` chunks. With `chunks`, as many, they lie in the order of prun/sequence_order.hpp.
// `distance` says how many chunks before it the one is whose positions come in front of a chunk, or go back.
constexpr AttrDef halo_attrs[] = {tail_attrs[0], tail_attrs[1], int_attr("distance", 1), int_attr("parts", 1),
                                  int_attr("chunks", 0)};

// Sets operand `to` to `from` with `taken` positions in place of each `given` ones. Heads are split before
// sequences, of which every axis that splits them has whole chunks.
void set_rows(OpShape& s, const char* op, int from, int to, std::int64_t given, std::int64_t taken) {
  const OperandShape x = s.operand[from];
  const std::int64_t rows = s.attrs[0].i, reach = s.attrs[1].i;
  require(rows >= reach && reach > 0, op, " takes a reach from 1 on that is no longer than a chunk's rows");
  require(x.rank >= 3 && x.dims[1].extent % given == 0, op, " takes [batch, sequence, ...] of whole chunks");
  s.like(to, from);
  s.operand[to].dims[1].extent = x.dims[1].extent / given * taken;
  s.prefer(x.dims[2].name);
}

// Checks that an operand has the tails of each chunk of operand 0.
void check_tails(const OpShape& s, const char* op, int tails) {
  const OperandShape &x = s.operand[0], &t = s.operand[tails];
  bool alike = x.rank == t.rank && x.dtype == t.dtype;
  for (int d = 0; alike && d < x.rank; ++d)
    alike = d == 1 ? x.dims[1].name == t.dims[1].name &&
                         x.dims[1].extent / s.attrs[0].i * s.attrs[1].i == t.dims[1].extent
                   : x.dims[d] == t.dims[d];
  require(alike, op, " takes the tails of each chunk, in the type of the rest");
}

// Has parts of a dimension go to the ranks of those that come `distance` behind them; a part behind none is
// not written.
struct Shift {
  static constexpr const char* kind = "shift";
  static constexpr const char* help = "each part of a sequence in the place of the one so many behind it";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0), int_attr("dim", 1), int_attr("distance", 1),
                                      int_attr("chunks", 0)};
  static constexpr OpExchange exchange{CommKind::send};
  static void rule(OpShape& s) {
    const std::int64_t dim = s.attrs[1].i;
    require(dim >= 0 && dim < s.operand[0].rank, "shift: dimension ", dim, " of ", s.operand[0].rank);
    s.like(1, 0);
    s.whole(0, static_cast<int>(dim), static_cast<int>(dim) + 1);
    s.pass_partial({0});
  }
};

struct HaloTails {
  static constexpr const char* kind = "halo_tails";
  static constexpr const char* help = "the last positions of each chunk of a sequence";
  static constexpr OperandDef operands[] = {{"x"}, {"tails", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 0, 1, s.attrs[0].i, s.attrs[1].i);
    s.pass_partial({0});
  }
};

// `halo` has what other ranks have sent. Of a chunk that the rank has itself, x has the tail, and no halo is
// read.
struct JoinHalo {
  static constexpr const char* kind = "join_halo";
  static constexpr const char* help =
      "each chunk of a sequence behind the tail of one before it, or behind zeros";
  static constexpr OperandDef operands[] = {{"x"}, {"halo"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[5] = halo_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 0, 2, s.attrs[0].i, s.attrs[0].i + s.attrs[1].i);
    check_tails(s, kind, 1);
    s.pass_partial({0, 1});
  }
};

struct PartHalo {
  static constexpr const char* kind = "part_halo";
  static constexpr const char* help = "what join_halo has put together, apart: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"x", Access::write}, {"halo", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = tail_attrs;
  static void rule(OpShape& s) {
    const std::int64_t rows = s.attrs[0].i, reach = s.attrs[1].i;
    set_rows(s, kind, 0, 1, rows + reach, rows);
    set_rows(s, kind, 0, 2, rows + reach, reach);
    s.pass_partial({0});
  }
};

// `tails` are those that other ranks have sent back, and `own` those that this one has parted: of a chunk in
// front of one that it has itself.
struct AddTails {
  static constexpr const char* kind = "add_tails";
  static constexpr const char* help =
      "x with what was in front of another chunk added to the last positions of each";
  static constexpr OperandDef operands[] = {{"x"}, {"tails"}, {"own"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[5] = halo_attrs;
  static void rule(OpShape& s) {
    set_rows(s, kind, 0, 3, s.attrs[0].i, s.attrs[0].i);
    check_tails(s, kind, 1);
    check_tails(s, kind, 2);
    s.pass_partial({0, 1, 2});
  }
};

}  // namespace

std::vector<OpDef> halo_ops() {
  return {op_def<HaloTails>(), op_def<Shift>(), op_def<JoinHalo>(), op_def<PartHalo>(), op_def<AddTails>()};
}

}  // namespace prun
