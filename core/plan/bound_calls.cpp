#include "plan/bound_calls.hpp"

#include <set>

#include "base/narrow.hpp"
#include "prun/sequence_order.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- bound calls

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

// ------------------------------------------------------------------- shifted

std::vector<ShiftedPiece> shifted_pieces(const PlannedExchange& exchange, std::int64_t place,
                                         std::int64_t members) {
  const SequenceOrder order{exchange.chunks > 0 ? 1 : 0, exchange.chunks};
  const std::int64_t parts = order.permutes() ? order.chunks : members, own = parts / members;
  PRUN_CHECK(own * members == parts && exchange.pieces % own == 0, exchange.pieces, " pieces of ", parts,
             " parts among ", members);
  std::vector<std::int64_t> places(static_cast<std::size_t>(parts));  // by number
  for (std::int64_t at = 0; at < parts; ++at) places[static_cast<std::size_t>(order.position(at))] = at;
  std::vector<ShiftedPiece> pieces;
  for (std::int64_t sample = 0; sample < exchange.pieces / own; ++sample)
    for (std::int64_t number = 0; number < parts; ++number) {
      const std::int64_t aim = number + exchange.distance;
      if (aim < 0 || aim >= parts) continue;
      const std::int64_t from = places[static_cast<std::size_t>(number)],
                         to = places[static_cast<std::size_t>(aim)];
      if (from / own == to / own) continue;
      if (from / own == place)
        pieces.push_back({CommKind::send, narrow<std::int32_t>(to / own), sample * own + from % own});
      if (to / own == place)
        pieces.push_back({CommKind::recv, narrow<std::int32_t>(from / own), sample * own + to % own});
    }
  return pieces;
}

}  // namespace prun
