// The op cap_choices keeps experts from having more positions of a sequence than `most`: of those that chose
// an expert, it keeps the `most` whose weights are largest, or without weights the first, and of equal ones
// the first; weights are equal that are so in fp32, so that the rounding of fp64 decides nothing. What it
// drops becomes -1, which is nobody's expert: it has no row, adds nothing and has no gradient, and the other
// weights of its position stay as they are. It looks at whole sequences, so that the result is the same
// however a step is cut into microbatches and sharded over ranks. most = 0 keeps all: nothing is dropped
// where nothing is trained.
//
// count_dropped: dropped[layer] += choices that were dropped. A sequence without a target that counts is
// padding and does not count.
#include <vector>

#include "base/require.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

void check_chosen(const OperandShape& index, const char* op) {
  require(index.rank == 3 && index.dtype == DType::i32, op, " takes i32 choices [batch, seq, choice]");
}

struct CapChoices {
  static constexpr const char* kind = "cap_choices";
  static constexpr const char* at_position = kind;
  static constexpr const char* noise = "most";
  static constexpr const char* help = "drops choices of an expert beyond so many of a sequence";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight", Access::read, true}, {"kept", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("most", 0), int_attr("experts", 0)};
  static void rule(OpShape& s) {
    const OperandShape &index = s.operand[0], &weight = s.operand[1];
    check_chosen(index, kind);
    if (weight.present) {
      bool alike = weight.rank == 3 && (weight.dtype == DType::f32 || weight.dtype == DType::f64);
      for (int i = 0; alike && i < 3; ++i) alike = weight.dims[i] == index.dims[i];
      require(alike, kind, " takes weights [batch, seq, choice] in fp32 or fp64");
    }
    require(s.attrs[0].i >= 0 && s.attrs[1].i >= 1, kind, ": of ", s.attrs[1].i, " experts each takes ",
            s.attrs[0].i, " at most");
    check_positions(s, 0, 3, kind);
    s.like(2, 0);
    s.whole(0, 1, 3);
  }
};

struct CountDropped {
  static constexpr const char* kind = "count_dropped";
  static constexpr const char* at_position = kind;  // in text that is generated nothing is counted
  static constexpr bool any_order = true;
  static constexpr const char* help = "counts choices that were dropped";
  static constexpr OperandDef operands[] = {{"index"}, {"targets"}, {"dropped", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const OperandShape &index = s.operand[0], &targets = s.operand[1], &dropped = s.operand[2];
    check_chosen(index, kind);
    require(targets.rank == 2 && targets.dtype == DType::i32 && targets.dims[0] == index.dims[0] &&
                targets.dims[1] == index.dims[1],
            kind, " takes i32 targets [batch, seq]");
    require(dropped.rank == 2 && dropped.dims[1].extent == 1 && dropped.dtype == DType::f64, kind,
            " counts into fp64 [layer, 1]");
    s.sum(0, 0, 1);
    s.whole(0, 1, 3);
    s.whole(2, 0, 2);
  }
};

}  // namespace

std::vector<OpDef> capacity_ops() { return {op_def<CapChoices>(), op_def<CountDropped>()}; }

}  // namespace prun
