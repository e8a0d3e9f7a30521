#include "plan/exchange_needs.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/narrow.hpp"
#include "plan/shifted.hpp"
#include "plan/staged_chunks.hpp"

namespace prun {

std::int32_t place_among(const std::vector<int>& members, std::int64_t rank) {
  const auto found = std::find(members.begin(), members.end(), static_cast<int>(rank));
  return narrow<std::int32_t>(found - members.begin());
}

bool is_staged(const DeviceInfo& device, const CommInfo& comm) {
  return !device.host_memory && !comm.device_memory;
}

namespace {

// Fills in what is known before there is memory.
CommOp operation_of(const PlannedExchange& exchange) {
  CommOp op;
  op.kind = exchange.kind;
  op.dtype = exchange.dtype;
  op.count = exchange.count / exchange.pieces;
  op.peer = exchange.peer;
  return op;
}

}  // namespace

StagingNeeds staging_needs(const Plan& plan, std::size_t queue, std::int64_t members) {
  StagingSlots slots;
  for (const Call& call : plan.calls) {
    if (static_cast<std::size_t>(call.queue) != queue) continue;
    for (const PlannedStep& step : plan.steps(call))
      if (step.exchange) slots.take(operation_of(*step.exchange), members);
  }
  return {slots.count * slots.bytes, slots.count > 1 ? 1 : 0};
}

namespace {

// Asks a comm plugin what collectives need on one of `size` members.
class AskedNeeds {
 public:
  AskedNeeds(CommInterface& comm, std::int32_t place, std::int32_t size, bool staged)
      : comm_(comm), place_(place), size_(size), staged_(staged) {}

  CommNeeds of(const PlannedExchange& exchange) {
    CommNeeds needs;
    CommOp op = operation_of(exchange);
    if (exchange.distance == 0) {
      add_chunks(op, exchange.pieces, needs);
      return needs;
    }
    for (const ShiftedPiece& one : shifted_pieces(exchange, place_, size_)) {
      op.kind = one.kind;
      op.peer = one.peer;
      add_chunks(op, 1, needs);
    }
    return needs;
  }

 private:
  void add_chunks(CommOp op, std::int64_t times, CommNeeds& needs) {
    const StagedChunks chunks(op, size_);
    const std::int64_t others = staged_ ? chunks.count() - 1 : 0;  // all of one size, before the last
    if (others > 0) {
      op.count = chunks.elements(0);
      add(op, others * times, needs);
      op.count = chunks.elements(others);
    }
    add(op, times, needs);
  }

  void add(const CommOp& op, std::int64_t times, CommNeeds& needs) {
    const auto [entry, fresh] = asked_.try_emplace({op.kind, op.dtype, op.count, op.peer});
    if (fresh) raise(comm_.needs(op, place_, size_, &entry->second));
    needs.bytes_sent += entry->second.bytes_sent * static_cast<std::uint64_t>(times);
    needs.memory_bytes = std::max(needs.memory_bytes, entry->second.memory_bytes);
  }

  CommInterface& comm_;
  const std::int32_t place_, size_;
  const bool staged_;
  // Cached: layers have equal collectives, and a plugin may count each message of one.
  std::map<std::tuple<CommKind, DType, std::int64_t, std::int32_t>, CommNeeds> asked_;
};

}  // namespace

CommNeeds planned_needs(const Mesh& mesh, const Plan& plan, std::int64_t rank, CommInterface& comm,
                        std::size_t queue, bool staged) {
  const std::vector<int> members = plan.queues[queue].members(mesh, rank);
  AskedNeeds asked(comm, place_among(members, rank), narrow<std::int32_t>(members.size()), staged);
  std::map<const PlannedStep*, CommNeeds> known;  // needs by step, since many calls run the same step
  CommNeeds total;
  for (const Call& call : plan.calls) {
    if (static_cast<std::size_t>(call.queue) != queue) continue;
    for (const PlannedStep& step : plan.steps(call)) {
      const auto [entry, fresh] = known.try_emplace(&step);
      if (fresh && step.exchange) entry->second = asked.of(*step.exchange);
      total.bytes_sent += entry->second.bytes_sent;
      total.memory_bytes = std::max(total.memory_bytes, entry->second.memory_bytes);
    }
  }
  return total;
}

}  // namespace prun
