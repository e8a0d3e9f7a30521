// All members take up operations that need scratch in the same order.
#include "run_queue.hpp"

#include <algorithm>

#include "tags.hpp"

namespace prun::ucx {

RunQueue::RunQueue(std::int32_t rank, std::int32_t size, const Tuning& tuning)
    : library_(rank, size, tuning), peers_(static_cast<std::size_t>(size)) {}

void RunQueue::prepare(const CommOp& op) {
  const Plan& plan = library_.prepare(op);
  ready_.reserve(plan.steps.size());
  active_.reserve(1);
  if (plan.scratch_bytes > 0) scratch_.give_back(scratch_.take(plan.scratch_bytes));
}

void RunQueue::number(Run& run, const CommOp& op) {
  if (op.kind == CommKind::send || op.kind == CommKind::recv) {
    Peer& peer = peers_[static_cast<std::size_t>(op.peer)];
    const std::uint32_t number = op.kind == CommKind::send ? peer.sends++ : peer.receives++;
    run.begin(op, make_tag(Traffic::pair, number), number);
  } else {
    const std::uint32_t number = collectives_++;
    run.begin(op, make_tag(Traffic::collective, number), number);
  }
}

void RunQueue::add(const CommOp& op) {
  Run& run = library_.take(op);
  number(run, op);
  steps_ += run.steps().size();
  ready_.reserve(steps_);
  active_.reserve(active_.size() + waiting_.size() + 1);
  const bool in_turn = waiting_.empty() || run.plan().scratch_bytes == 0;
  if (!in_turn || !launch(run)) waiting_.push_back(&run);
}

bool RunQueue::launch(Run& run) {
  if (run.plan().scratch_bytes > 0) {
    std::byte* scratch = scratch_.take(run.plan().scratch_bytes);
    if (!scratch) return false;
    run.use_scratch(scratch);
  }
  active_.push_back(&run);
  run.add_first(ready_);
  if (run.done()) retire(run);
  return true;
}

void RunQueue::retire_done() {
  for (std::size_t i = active_.size(); i-- > 0;)
    if (i < active_.size() && active_[i]->done()) retire(*active_[i]);
}

void RunQueue::retire(Run& run) {
  ++operations_;
  bytes_sent_ += run.plan().bytes_sent;
  bytes_received_ += run.plan().bytes_received;
  steps_ -= run.steps().size();
  if (run.plan().scratch_bytes > 0) scratch_.give_back(run.address({Buffer::scratch, 0}));
  active_.erase(std::find(active_.begin(), active_.end(), &run));
  library_.give_back(run);
  while (!waiting_.empty() && launch(*waiting_.front())) waiting_.erase(waiting_.begin());
}

Farewell RunQueue::started_with(std::int32_t member) const {
  const Peer& peer = peers_[static_cast<std::size_t>(member)];
  return {collectives_, peer.sends, peer.receives, 0};
}

}  // namespace prun::ucx
