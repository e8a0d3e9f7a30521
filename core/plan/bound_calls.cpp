#include "plan/bound_calls.hpp"

#include <set>

namespace prun {
namespace {

// Bytes that an allocator adds to a block.
constexpr std::int64_t of_block = 16;
// Bytes of a call for its waits, stamps, edges, and its lookup.
constexpr std::int64_t of_call = 640;
// A launch is kept with its piece, in its queue's work, and by the device.
constexpr std::int64_t launch_copies = 3;

std::int64_t bytes_of(const PlannedStep& step, FunctionKind kind) {
  if (step.exchange) {
    const std::int64_t ways = step.exchange->distance != 0 ? 2 : 1;  // a piece is sent, and one received
    return ways * step.exchange->pieces * static_cast<std::int64_t>(sizeof(CommOp)) + 2 * of_block;
  }
  const auto operands = static_cast<std::int64_t>(step.operands.size());
  const std::int64_t elements =
      is_update(kind) ? static_cast<std::int64_t>(sizeof(TensorElements)) + 3 * of_block : 0;
  return launch_copies * static_cast<std::int64_t>(sizeof(Launch)) +
         operands * static_cast<std::int64_t>(sizeof(Tensor)) + 3 * of_block + elements;
}

}  // namespace

BoundKey bound_key(const Plan& plan, const Call& call, int side) {
  const PlannedFunction& function = plan.functions[call.function];
  const std::int32_t input = function.uses_batch ? call.microbatch
                             : function.uses_inputs
                                 ? call.microbatch % static_cast<std::int32_t>(plan.input_slots)
                                 : -1;
  return {call.function,  call.piece,
          call.instance,  call.slot,
          call.stub_slot, call.carried_slot,
          input,          function.uses_batch || plan.overlaps ? plan.side_of(call, side) : 0,
          call.first};
}

std::int64_t bound_bytes(const Plan& plan) {
  std::set<BoundKey> known;
  std::int64_t bytes = 0;
  for (const Call& call : plan.calls) {
    bytes += of_call;
    if (!known.insert(bound_key(plan, call, 0)).second) continue;
    const PlannedFunction& function = plan.functions[call.function];
    const std::int64_t copies = function.uses_batch || plan.overlaps ? plan.staging_copies : 1;
    for (const PlannedStep& step : plan.steps(call)) bytes += copies * bytes_of(step, function.kind);
  }
  return bytes;
}

}  // namespace prun
