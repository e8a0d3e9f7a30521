#include "plan/exchange_needs.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/narrow.hpp"
#include "plan/bound_calls.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- staged chunks

// This is the larger buffer's size. With smaller chunks the latency of an operation shows; with larger ones
// the copies of the first and last chunk.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20;
constexpr std::int64_t alignment = 64;

std::int64_t align(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

StagedChunks::StagedChunks(const CommOp& op, std::int64_t members) : op_(op) {
  switch (op.kind) {
    case CommKind::all_reduce:
    case CommKind::broadcast: in_parts_ = out_parts_ = 1; break;
    case CommKind::all_gather: in_parts_ = 1, out_parts_ = members; break;
    case CommKind::reduce_scatter: in_parts_ = members, out_parts_ = 1; break;
    case CommKind::all_to_all: in_parts_ = out_parts_ = members; break;
    case CommKind::send: in_parts_ = 1; break;
    case CommKind::recv: out_parts_ = 1; break;
    case CommKind::barrier: return;
  }
  const std::int64_t size = size_of(op.dtype), parts = std::max(in_parts_, out_parts_);
  if (op.in && op.out && in_parts_ != out_parts_ && op.count > 0) {
    const auto* const in = static_cast<const std::byte*>(op.in);
    const auto* const out = static_cast<const std::byte*>(op.out);
    const std::int64_t within = in_parts_ < out_parts_ ? in - out : out - in;
    if (within >= 0 && within < parts * op.count * size) own_ = within / (op.count * size);
  }
  elements_ = std::max<std::int64_t>(alignment, chunk_bytes / (parts * size) / alignment * alignment);
  count_ = std::max<std::int64_t>(1, (op.count + elements_ - 1) / elements_);
}

std::int64_t StagedChunks::bytes() const {
  const std::int64_t part = part_bytes(0);
  return std::max(in_at(part) + in_parts_ * part, out_at(part) + out_parts_ * part);
}

CommOp StagedChunks::at(std::int64_t chunk, std::byte* pinned) const {
  const std::int64_t part = part_bytes(chunk);
  CommOp op = op_;
  op.count = elements(chunk);
  op.in = in_parts_ > 0 && op.kind != CommKind::broadcast ? pinned + in_at(part) : nullptr;
  op.out = out_parts_ > 0 ? pinned + out_at(part) : nullptr;
  return op;
}

std::int64_t StagedChunks::in_at(std::int64_t part) const {
  if (out_parts_ <= in_parts_) return 0;
  return in_parts_ == 0 ? 0 : own_ >= 0 ? own_ * part : align(out_parts_ * part);
}

// Returns where output begins: a sum may overwrite its input.
std::int64_t StagedChunks::out_at(std::int64_t part) const {
  if (out_parts_ > in_parts_ || op_.kind == CommKind::all_reduce || op_.kind == CommKind::broadcast) return 0;
  return own_ >= 0 ? own_ * part : align(in_parts_ * part);
}

void StagingSlots::take(const CommOp& op, std::int64_t members) {
  constexpr std::int64_t at_a_time = 2;  // one is sent while another is copied
  const StagedChunks chunks(op, members);
  if (chunks.count() > 1) count = at_a_time;
  bytes = std::max(bytes, chunks.bytes());
}

// ------------------------------------------------------------------- exchange needs

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
