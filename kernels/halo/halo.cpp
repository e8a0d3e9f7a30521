#include <vector>

#include "base/require.hpp"
#include "prun/ops/halo.hpp"

namespace prun::ops {
namespace {

// Sets operand `to` to `from` with `taken` positions in place of each `given` ones. Heads are split before
// sequences, of which every axis that splits them has whole chunks.
template <class Op>
void set_rows(RuleOf<Op> s, OperandOf<Op> from, OperandOf<Op> to, std::int64_t given, std::int64_t taken) {
  const char* const op = Op::kind;
  const OperandShape x = s[from];
  const std::int64_t rows = s.integer("rows"), reach = s.integer("reach");
  require(rows >= reach && reach > 0, op, " takes a reach from 1 on that is no longer than a chunk's rows");
  require(x.rank >= 3 && x.dims[1].extent % given == 0, op, " takes [batch, sequence, ...] of whole chunks");
  s.like(to, from);
  s[to].dims[1].extent = x.dims[1].extent / given * taken;
  s.prefer(x.dims[2].name);
}

// Checks that an operand has the tails of each chunk of x.
template <class Op>
void check_tails(const ShapeOf<Op>& s, OperandOf<Op> tails) {
  const OperandShape &x = s["x"], &t = s[tails];
  bool alike = x.rank == t.rank && x.dtype == t.dtype;
  for (int d = 0; alike && d < x.rank; ++d)
    alike = d == 1 ? x.dims[1].name == t.dims[1].name &&
                         x.dims[1].extent / s.integer("rows") * s.integer("reach") == t.dims[1].extent
                   : x.dims[d] == t.dims[d];
  require(alike, Op::kind, " takes the tails of each chunk, in the type of the rest");
}

}  // namespace

void Shift::rule(RuleOf<Shift> s) {
  const std::int64_t dim = s.integer("dim");
  require(dim >= 0 && dim < s["x"].rank, "shift: dimension ", dim, " of ", s["x"].rank);
  s.like("y", "x");
  s.whole("x", static_cast<int>(dim), static_cast<int>(dim) + 1);
  s.pass_partial({"x"});
}

void HaloTails::rule(RuleOf<HaloTails> s) {
  set_rows(s, "x", "tails", s.integer("rows"), s.integer("reach"));
  s.pass_partial({"x"});
}

void JoinHalo::rule(RuleOf<JoinHalo> s) {
  set_rows(s, "x", "y", s.integer("rows"), s.integer("rows") + s.integer("reach"));
  check_tails(s, "halo");
  s.pass_partial({"x", "halo"});
}

void PartHalo::rule(RuleOf<PartHalo> s) {
  const std::int64_t rows = s.integer("rows"), reach = s.integer("reach");
  set_rows(s, "y", "x", rows + reach, rows);
  set_rows(s, "y", "halo", rows + reach, reach);
  s.pass_partial({"y"});
}

void AddTails::rule(RuleOf<AddTails> s) {
  set_rows(s, "x", "y", s.integer("rows"), s.integer("rows"));
  check_tails(s, "tails");
  check_tails(s, "own");
  s.pass_partial({"x", "tails", "own"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> halo_ops() {
  using namespace ops;
  return {op_def<HaloTails>(), op_def<Shift>(), op_def<JoinHalo>(), op_def<PartHalo>(), op_def<AddTails>()};
}

}  // namespace prun
