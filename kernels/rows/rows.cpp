#include <vector>

#include "base/require.hpp"
#include "prun/ops/rows.hpp"

namespace prun::ops {
namespace {

constexpr const char *part_dim = "experts", *row_dim = "rows";

template <class Op>
void check_parts(const ShapeOf<Op>& s) {
  const std::int64_t parts = s.integer("parts"), rows = s.integer("rows"), experts = s.integer("experts");
  require(parts >= 1 && rows >= 1 && experts >= parts && experts % parts == 0, Op::kind, ": ", experts,
          " experts in ", parts, " parts, ", rows, " rows for each");
}

void check_index(const OperandShape& index, const char* op) {
  require(index.rank == 3 && index.dtype == DType::i32, op, " takes i32 choices [batch, seq, choice]");
}

// Marks what is looked at as a whole: all positions of a sequence, all choices, all rows.
void want_whole_sequences(OpShape& s, int index) {
  s.whole(index, 1, 3);
  s.whole(part_dim);
  s.whole(row_dim);
}

template <class Op>
void set_rows(RuleOf<Op> s, OperandOf<Op> to, DType type, const Dim& batch, const Dim& last) {
  const Dim dims[] = {{part_dim, s.integer("parts")}, batch, {row_dim, s.integer("rows")}, last};
  s.output(to, type, dims, 4);
}

}  // namespace

void SendRows::rule(RuleOf<SendRows> s) {
  const OperandShape &x = s["x"], &index = s["index"];
  check_parts(s);
  check_index(index, kind);
  require(x.rank == 3 && x.dims[0] == index.dims[0] && x.dims[1] == index.dims[1], kind,
          " takes x [batch, seq, hidden]");
  set_rows(s, "rows", x.dtype, x.dims[0], x.dims[2]);
  want_whole_sequences(s, s.at("index"));
}

void SendChoices::rule(RuleOf<SendChoices> s) {
  const OperandShape &index = s["index"], &weight = s["weight"];
  check_parts(s);
  check_index(index, kind);
  bool alike = weight.rank == 3 && (weight.dtype == DType::f32 || weight.dtype == DType::f64);
  for (int i = 0; alike && i < 3; ++i) alike = weight.dims[i] == index.dims[i];
  require(alike, kind, " takes weights [batch, seq, choice] in fp32 or fp64");
  set_rows(s, "row_index", index.dtype, index.dims[0], index.dims[2]);
  set_rows(s, "row_weight", weight.dtype, index.dims[0], index.dims[2]);
  want_whole_sequences(s, s.at("index"));
}

void ReturnRows::rule(RuleOf<ReturnRows> s) {
  const OperandShape &rows = s["rows"], &index = s["index"], &of_rows = s["row_numbers"];
  check_parts(s);
  check_index(index, kind);
  require(rows.rank == 4 && rows.dims[0] == Dim{part_dim, s.integer("parts")} &&
              rows.dims[1] == index.dims[0] && rows.dims[2] == Dim{row_dim, s.integer("rows")},
          kind, " takes rows [experts, batch, rows, hidden]");
  const Dim y[] = {index.dims[0], index.dims[1], rows.dims[3]};
  s.output("y", rows.dtype, y, 3);
  require(of_rows.present || !s["numbers"].present, kind, " takes numbers from those of rows");
  if (of_rows.present) {
    bool alike = of_rows.rank == 4 && of_rows.dims[3] == index.dims[2];
    for (int i = 0; alike && i < 3; ++i) alike = of_rows.dims[i] == rows.dims[i];
    require(alike, kind, " takes numbers of rows [experts, batch, rows, choice]");
    s.output("numbers", of_rows.dtype, index.dims, 3);
  }
  want_whole_sequences(s, s.at("index"));
  s.pass_partial({"rows", "row_numbers"});
}

void CountRows::rule(RuleOf<CountRows> s) {
  const OperandShape& needed = s["needed"];
  check_parts(s);
  check_index(s["index"], kind);
  require(needed.rank == 2 && needed.dims[1].extent == 2 && needed.dtype == DType::f64, kind,
          " counts into fp64 [layer, 2]");
  require(s.real("mean") > 0, kind, ": a mean of ", s.real("mean"), " rows");
  s.max("index", 0, 1);
  s.whole("index", 1, 3);
  s.whole("needed", 0, 2);
  s.pass_maximum({"needed"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> rows_ops() {
  using namespace ops;
  return {op_def<SendRows>(), op_def<SendChoices>(), op_def<ReturnRows>(), op_def<CountRows>()};
}

}  // namespace prun
