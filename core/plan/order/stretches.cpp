#include "plan/order/stretches.hpp"

#include <algorithm>

namespace prun {
namespace {

void merge(std::vector<ByteUse>& uses) {
  std::sort(uses.begin(), uses.end(), [](const ByteUse& a, const ByteUse& b) {
    return a.writes != b.writes ? a.writes > b.writes : a.begin < b.begin;
  });
  std::size_t kept = 0;
  for (const ByteUse& use : uses) {
    if (kept > 0 && uses[kept - 1].writes == use.writes && use.begin <= uses[kept - 1].end)
      uses[kept - 1].end = std::max(uses[kept - 1].end, use.end);
    else
      uses[kept++] = use;
  }
  uses.resize(kept);
}

bool is_workspace(const PlannedStep& step, const Address& dead) {
  return step.workspace.bytes > 0 && dead.region == step.workspace.region &&
         dead.range == step.workspace.range && dead.offset == step.workspace.offset &&
         dead.bytes == step.workspace.bytes;
}

}  // namespace

void find_uses(const Program& program, const Plan& plan, const Call& call, int side, UsesOf whose,
               std::vector<ByteUse>& uses) {
  uses.clear();
  const bool own = whose == UsesOf::this_rank;
  const auto add = [&](const Address& address, bool writes) {
    if (address.bytes == 0) return;
    std::int64_t at = plan.resolve(call, address, side), bytes = address.bytes;
    if (!own) {
      at -= plan.part_of(address) * bytes;
      bytes *= plan.parts_of(address);
    }
    uses.push_back({at, at + bytes, writes});
  };
  for (const PlannedStep& step : plan.steps(call)) {
    if (step.exchange) {
      add(step.exchange->in, false);
      add(step.exchange->out, true);
    } else {
      const Op& op = program.op(step.op);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] != none) add(step.operands[i].address, op.access(i) != Access::read);
      if (own) add(step.workspace, true);
    }
    for (const Address& dead : step.dead_after)
      if (own || !is_workspace(step, dead)) add(dead, true);
    for (const Fence& fence : step.fences)
      if (own || fence.operand >= 0) add(fence.bytes, true);
  }
  merge(uses);
}

}  // namespace prun
