#include "plan/function/function_order.hpp"

#include <algorithm>

namespace prun {
namespace {

// Whether one op must come after another, by the values that they touch.
bool depends(const Op& later, const Op& earlier) {
  for (std::size_t i = 0; i < later.operands.size(); ++i)
    for (std::size_t j = 0; j < earlier.operands.size(); ++j)
      if (later.operands[i] != none && later.operands[i] == earlier.operands[j] &&
          (later.access(i) != Access::read || earlier.access(j) != Access::read))
        return true;
  return false;
}

}  // namespace

std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind) {
  std::vector<Id> left = program.segment(segment).ops(kind), ordered;
  if (segment != program.step_segment()) return left;
  for (bool exchanges = false; !left.empty(); exchanges = !exchanges)
    for (std::size_t i = 0; i < left.size();) {
      const Op& op = program.op(left[i]);
      const bool waits = std::any_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](Id before) { return depends(op, program.op(before)); });
      if (waits || (op.exchange() != nullptr) != exchanges) {
        ++i;
        continue;
      }
      ordered.push_back(left[i]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
  return ordered;
}

}  // namespace prun
