// Implements key and look-up, and alone maps a kind to its algorithm.
#include "library.hpp"

namespace prun::ucx {

bool Library::in_place(const CommOp& op) const {
  const auto* in = static_cast<const std::byte*>(op.in);
  const auto* out = static_cast<const std::byte*>(op.out);
  const std::int64_t own = rank_ * op.count * size_of(op.dtype);
  switch (op.kind) {
    case CommKind::all_reduce: return in == out;
    case CommKind::all_gather: return in == out + own;
    case CommKind::reduce_scatter: return out == in + own;
    default: return false;
  }
}

// Chunks hold whole elements and so depend on their size.
Library::Key Library::key_of(const CommOp& op) const {
  return {op.kind, op.count, size_of(op.dtype), op.peer, in_place(op)};
}

Plan Library::write(const CommOp& op) const {
  const Shape shape{rank_, size_, op.count, size_of(op.dtype), op.peer, in_place(op), tuning_};
  switch (op.kind) {
    case CommKind::all_reduce: return plan_all_reduce(shape);
    case CommKind::all_gather: return plan_all_gather(shape);
    case CommKind::reduce_scatter: return plan_reduce_scatter(shape);
    case CommKind::broadcast: return plan_broadcast(shape);
    case CommKind::all_to_all: return plan_all_to_all(shape);
    case CommKind::send: return plan_send(shape);
    case CommKind::recv: return plan_recv(shape);
    case CommKind::barrier: return plan_barrier(shape);
  }
  throw_error(ErrorCode::internal, "no operation of number ", static_cast<int>(op.kind));
}

CommNeeds Library::needs(const CommOp& op) const {
  const Plan plan = write(op);
  return {plan.bytes_sent, plan.scratch_bytes};
}

// Returns the operation's shelf, with a run on it that is not in use.
Library::Shelf& Library::shelf_of(const CommOp& op) {
  const Key key = key_of(op);
  auto found = shelves_.find(key);
  if (found == shelves_.end()) {
    found = shelves_.try_emplace(key).first;
    found->second.plan = write(op);
  }
  Shelf& shelf = found->second;
  if (shelf.free.empty()) {
    shelf.runs.push_back(std::make_unique<Run>(shelf.plan));
    shelf.free.reserve(shelf.runs.size());
    shelf.free.push_back(shelf.runs.back().get());
  }
  return shelf;
}

const Plan& Library::prepare(const CommOp& op) { return shelf_of(op).plan; }

Run& Library::take(const CommOp& op) {
  Shelf& shelf = shelf_of(op);
  Run& run = *shelf.free.back();
  shelf.free.pop_back();
  return run;
}

void Library::give_back(Run& run) { shelves_.find(key_of(run.op()))->second.free.push_back(&run); }

}  // namespace prun::ucx
