// Rows for the ranks that hold a part of the experts each. Experts come in `parts` equal groups, and for each
// part of them and each sequence there are `rows` rows: one for each position that has a choice in that part,
// in the order of positions, and behind these empty ones.
//   send_rows     rows[part, sequence] = x of those positions; empty ones are zero
//   send_choices  their choices in that part with their weights; all others are -1, which is nobody's expert
//   return_rows   y = sum of a position's rows, in the order of parts; and numbers of its choices, each from
//                 its own row
//   count_rows    needed[layer] = the most rows of any part and sequence, and `rows`, over `mean`
// Positions beyond `rows` have none: what they would have added is missing, and a step that was counted so is
// not kept. The rows of a sequence follow from that sequence alone, however a step is cut into microbatches.
// Ranks exchange the dimension of parts, `experts`, for that of sequences.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef parts_attrs[] = {int_attr("parts", 1), int_attr("rows", 1), int_attr("experts", 1)};
constexpr const char *part_dim = "experts", *row_dim = "rows";

void check_parts(const OpShape& s, const char* op) {
  const std::int64_t parts = s.attrs[0].i, rows = s.attrs[1].i, experts = s.attrs[2].i;
  require(parts >= 1 && rows >= 1 && experts >= parts && experts % parts == 0, op, ": ", experts,
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

void set_rows(OpShape& s, int to, DType type, const Dim& batch, const Dim& last) {
  const Dim dims[] = {{part_dim, s.attrs[0].i}, batch, {row_dim, s.attrs[1].i}, last};
  s.output(to, type, dims, 4);
}

struct SendRows {
  static constexpr const char* kind = "send_rows";
  static constexpr const char* help = "x of the positions that have a choice in each part of the experts";
  static constexpr OperandDef operands[] = {{"x"}, {"index"}, {"rows", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &index = s.operand[1];
    check_parts(s, kind);
    check_index(index, kind);
    require(x.rank == 3 && x.dims[0] == index.dims[0] && x.dims[1] == index.dims[1], kind,
            " takes x [batch, seq, hidden]");
    set_rows(s, 2, x.dtype, x.dims[0], x.dims[2]);
    want_whole_sequences(s, 1);
  }
};

struct SendChoices {
  static constexpr const char* kind = "send_choices";
  static constexpr const char* help = "choices and weights of the positions that send_rows sends";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight"}, {"row_index", Access::write}, {"row_weight", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(OpShape& s) {
    const OperandShape &index = s.operand[0], &weight = s.operand[1];
    check_parts(s, kind);
    check_index(index, kind);
    bool alike = weight.rank == 3 && (weight.dtype == DType::f32 || weight.dtype == DType::f64);
    for (int i = 0; alike && i < 3; ++i) alike = weight.dims[i] == index.dims[i];
    require(alike, kind, " takes weights [batch, seq, choice] in fp32 or fp64");
    set_rows(s, 2, index.dtype, index.dims[0], index.dims[2]);
    set_rows(s, 3, weight.dtype, index.dims[0], index.dims[2]);
    want_whole_sequences(s, 0);
  }
};

struct ReturnRows {
  static constexpr const char* kind = "return_rows";
  static constexpr const char* help = "y = sum over parts of the rows that send_rows made of each position";
  static constexpr OperandDef operands[] = {{"rows"},
                                            {"index"},
                                            {.name = "row_numbers", .optional = true},
                                            {"y", Access::write},
                                            {"numbers", Access::write, true}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(OpShape& s) {
    const OperandShape &rows = s.operand[0], &index = s.operand[1], &of_rows = s.operand[2];
    check_parts(s, kind);
    check_index(index, kind);
    require(rows.rank == 4 && rows.dims[0] == Dim{part_dim, s.attrs[0].i} && rows.dims[1] == index.dims[0] &&
                rows.dims[2] == Dim{row_dim, s.attrs[1].i},
            kind, " takes rows [experts, batch, rows, hidden]");
    const Dim y[] = {index.dims[0], index.dims[1], rows.dims[3]};
    s.output(3, rows.dtype, y, 3);
    require(of_rows.present || !s.operand[4].present, kind, " takes numbers from those of rows");
    if (of_rows.present) {
      bool alike = of_rows.rank == 4 && of_rows.dims[3] == index.dims[2];
      for (int i = 0; alike && i < 3; ++i) alike = of_rows.dims[i] == rows.dims[i];
      require(alike, kind, " takes numbers of rows [experts, batch, rows, choice]");
      s.output(4, of_rows.dtype, index.dims, 3);
    }
    want_whole_sequences(s, 1);
    s.pass_partial({0, 2});
  }
};

struct CountRows {
  static constexpr const char* kind = "count_rows";
  static constexpr const char* help = "the most rows that a part of the experts needs of a sequence";
  static constexpr OperandDef operands[] = {{"index"}, {"needed", Access::update}};
  static constexpr AttrDef attrs[] = {parts_attrs[0], parts_attrs[1], parts_attrs[2], real_attr("mean", 1.0)};
  static constexpr Effect effect = Effect::update;
  static constexpr bool any_order = true;
  static void rule(OpShape& s) {
    const OperandShape& needed = s.operand[1];
    check_parts(s, kind);
    check_index(s.operand[0], kind);
    require(needed.rank == 2 && needed.dims[1].extent == 2 && needed.dtype == DType::f64, kind,
            " counts into fp64 [layer, 2]");
    require(s.attrs[3].f > 0, kind, ": a mean of ", s.attrs[3].f, " rows");
    s.max(0, 0, 1);
    s.whole(0, 1, 3);
    s.whole(1, 0, 2);
    s.pass_maximum({1});
  }
};

}  // namespace

std::vector<OpDef> rows_ops() {
  return {op_def<SendRows>(), op_def<SendChoices>(), op_def<ReturnRows>(), op_def<CountRows>()};
}

}  // namespace prun
