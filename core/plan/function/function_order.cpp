#include "plan/function/function_order.hpp"

#include <algorithm>
#include <iterator>

#include "ops/registry.hpp"

namespace prun {
namespace {

// Says whether one op must come after another, by the values that they touch.
bool depends(const Op& later, const Op& earlier) {
  for (std::size_t i = 0; i < later.operands.size(); ++i)
    for (std::size_t j = 0; j < earlier.operands.size(); ++j)
      if (later.operands[i] != none && later.operands[i] == earlier.operands[j] &&
          (later.access(i) != Access::read || earlier.access(j) != Access::read))
        return true;
  return false;
}

// Moves exchanges for pieces ahead: one begins before the op that reads across parts for the piece before,
// and travels while that op runs, in memory that the op does not free for it.
std::vector<Id> with_pieces_ahead(const Program& program, const std::vector<Id>& ops) {
  std::vector<Id> ordered;
  for (const Id id : ops) {
    ordered.push_back(id);
    const Op& op = program.op(id);
    if (!op.exchange()) continue;
    const auto own = ordered.end() - 1;
    const auto looks = std::find_if(std::make_reverse_iterator(own), ordered.rend(),
                                    [&](Id before) { return looks_across(program, before); });
    if (looks == ordered.rend()) continue;
    const auto ahead = looks.base() - 1;
    if (std::none_of(ahead, own, [&](Id before) { return depends(op, program.op(before)); }))
      std::rotate(ahead, own, ordered.end());
  }
  return ordered;
}

}  // namespace

bool looks_across(const Program& program, Id op) {
  return program.registry().looks_across(program.op(op).kind());
}

std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind) {
  std::vector<Id> left = program.segment(segment).ops(kind), ordered;
  if (segment != program.step_segment()) return with_pieces_ahead(program, left);
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
