#include <vector>

#include "base/require.hpp"
#include "prun/ops/capacity.hpp"
#include "rules/positions.hpp"

namespace prun::ops {
namespace {

void check_chosen(const OperandShape& index, const char* op) {
  require(index.rank == 3 && index.dtype == DType::i32, op, " takes i32 choices [batch, seq, choice]");
}

}  // namespace

void CapChoices::rule(RuleOf<CapChoices> s) {
  const OperandShape &index = s["index"], &weight = s["weight"];
  check_chosen(index, kind);
  if (weight.present) {
    bool alike = weight.rank == 3 && (weight.dtype == DType::f32 || weight.dtype == DType::f64);
    for (int i = 0; alike && i < 3; ++i) alike = weight.dims[i] == index.dims[i];
    require(alike, kind, " takes weights [batch, seq, choice] in fp32 or fp64");
  }
  require(s.integer("most") >= 0 && s.integer("experts") >= 1, kind, ": of ", s.integer("experts"),
          " experts each takes ", s.integer("most"), " at most");
  check_positions(s, s.at("index"), s.at("positions"), kind);
  s.like("kept", "index");
  s.whole("index", 1, 3);
}

void CountDropped::rule(RuleOf<CountDropped> s) {
  const OperandShape &index = s["index"], &targets = s["targets"], &dropped = s["dropped"];
  check_chosen(index, kind);
  require(targets.rank == 2 && targets.dtype == DType::i32 && targets.dims[0] == index.dims[0] &&
              targets.dims[1] == index.dims[1],
          kind, " takes i32 targets [batch, seq]");
  require(dropped.rank == 2 && dropped.dims[1].extent == 1 && dropped.dtype == DType::f64, kind,
          " counts into fp64 [layer, 1]");
  s.sum("index", 0, 1);
  s.whole("index", 1, 3);
  s.whole("dropped", 0, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> capacity_ops() {
  using namespace ops;
  return {op_def<CapChoices>(), op_def<CountDropped>()};
}

}  // namespace prun
