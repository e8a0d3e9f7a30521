#include "experts_fusion.hpp"

#include <algorithm>
#include <vector>

namespace prun {
namespace {

// Returns the op of the other half behind `op` in its function, on the same values, or `none`.
Id other_half(const Segment& segment, Id op) {
  constexpr std::ptrdiff_t shared = 7;  // counts the operands that both halves begin with
  const ProgramRef program = segment.program();
  const std::vector<Id> all = segment.operations(program.op(op).function);
  const std::vector<Id> own(program.op(op).operands.begin(), program.op(op).operands.end());
  for (const Id other : all) {
    if (program.op(other).kind.view() != "experts_weight_grad") continue;
    const Array<Id> operands = program.op(other).operands;
    if (std::equal(operands.begin(), operands.begin() + shared, own.begin())) return other;
  }
  return none;
}

// Returns the input halves of one function, before any of its ops is removed.
std::vector<Id> input_halves(const Segment& segment, FunctionKind kind) {
  std::vector<Id> halves = segment.operations(kind);
  std::erase_if(halves, [&](Id op) { return segment.program().op(op).kind.view() != "experts_grad"; });
  return halves;
}

void fuse(ProgramRef program, Id op, Id other) {
  const std::vector<Id> input(program.op(op).operands.begin(), program.op(op).operands.end());
  const Array<Id> weight = program.op(other).operands;
  const double experts = program.attr(op, "experts"), positions = program.attr(op, "positions");
  program.replace_op(op, "experts_grads",
                     {input[0], input[1], input[2], input[3], input[4], input[5], input[6], input[7],
                      input[8], weight.data[7], weight.data[8]},
                     {{"experts", experts}, {"positions", positions}});
  program.erase(other);
}

}  // namespace

void fuse_expert_gradients(ProgramRef program) {
  for (const Segment& segment : program.segments())
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id op : input_halves(segment, static_cast<FunctionKind>(kind)))
        if (const Id other = other_half(segment, op); other != none) fuse(program, op, other);
}

}  // namespace prun
