#include "execute/blocking_queues.hpp"

#include <algorithm>
#include <cstring>

#include "base/thread.hpp"

namespace prun {
namespace {

constexpr std::byte untouched{0xa5};

void put_up(const std::vector<std::span<std::byte>>& fences) {
  for (const std::span<std::byte> fence : fences) std::fill(fence.begin(), fence.end(), untouched);
}

// Compares each byte with the next, which memcmp() does many at a time.
bool is_trampled(std::span<const std::byte> fence) {
  if (fence.empty()) return false;
  return fence.front() != untouched || std::memcmp(fence.data(), fence.data() + 1, fence.size() - 1) != 0;
}

}  // namespace

Poison::Poison(const Program& program, const Plan& plan, const PlanMemory& memory)
    : program_(program), plan_(plan), memory_(memory) {
  put_up(memory_.fences());
}

void Poison::before(const BoundPiece& piece, std::size_t index) const { put_up(piece.fences[index]); }

Status Poison::after(const Call& call, const BoundPiece& piece, std::size_t index) const {
  const auto& fences = piece.fences[index];
  const auto at = std::find_if(fences.begin(), fences.end(), is_trampled);
  if (at != fences.end())
    return trespass(call, index,
                    &plan_.steps(call)[index].fences[static_cast<std::size_t>(at - fences.begin())]);
  const auto& outside = memory_.fences();
  if (std::any_of(outside.begin(), outside.end(), is_trampled)) return trespass(call, index, nullptr);
  spoil(piece, index);
  return {};
}

void Poison::spoil(const BoundPiece& piece, std::size_t index) {
  for (const std::span<std::byte> dead : piece.dead[index]) std::memset(dead.data(), 0xff, dead.size());
}

// Reports a write into a fence; a null `fence` stands for those around all memory.
Status Poison::trespass(const Call& call, std::size_t index, const Fence* fence) const {
  const Op& op = program_.op(plan_.steps(call)[index].op);
  std::string where = "outside the arena";
  if (fence)
    where = detail::concat(fence->before ? "in front of " : "behind ",
                           fence->operand < 0
                               ? std::string("its workspace")
                               : detail::concat("its operand '", op.def->operands[fence->operand].name, "'"));
  const Instance& instance = plan_.instances[call.instance];
  return Status::failure(
      ErrorCode::bad_input,
      detail::concat("the kernel of op '", op.kind(), "' in layer ", instance.layer, " of '",
                     program_.segment(op.segment).name, "' wrote ", where, "; mend the kernel"));
}

void BlockingQueues::start() {
  threads_.reserve(queues_.all().size());
  for (auto& queue : queues_.all())
    if (!queue->asynchronous)
      threads_.push_back(
          start_thread("queue '" + queue->info.name + "'", [this, &queue = *queue] { run(queue); }));
}

void BlockingQueues::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void BlockingQueues::run(QueueRun& queue) {
  if (const Status status = queue.device.attach(queue.handle); !status.ok()) queues_.fail(queue, status, 0);
  for (std::int64_t iteration = 0; steps_.may_run(iteration); ++iteration)
    for (const BoundCall& bound : queue.calls) {
      await(queue, bound, iteration);
      if (bound.call->runs_in(steps_.run(iteration).iteration)) run_call(queue, bound, iteration);
      if (bound.signals) queue.ticket.publish(queue.ticket_of(iteration, bound.call->position));
    }
}

// A queue that has failed goes on handing out tickets, so that no thread waits for ever.
void BlockingQueues::run_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration) {
  const Call& call = *bound.call;
  const std::int64_t step = steps_.run(iteration).step;
  // Calls behind one that is left out rely on its wait for a save.
  if (saves_ && call.save_read >= 0) saves_->await(call.save_read);
  if (call.unless && bound.known->ticket.reached(bound.known->ticket_of(iteration, call.unless->call)))
    return;
  watchers_.tell([&](Probe& probe, double at) { probe.begin_call(queue.index, call, step, at); });
  if (!queue.failed_by(iteration)) {
    const BoundSide& side = bound.side(step);
    const Status status = queue.comm.comm ? exchange(queue, *side.piece) : launch(queue, call, side, step);
    if (!status.ok()) queues_.fail(queue, status, iteration);
  }
  watchers_.tell([&](Probe& probe, double at) { probe.end_call(queue.index, call, step, at); });
}

void BlockingQueues::await(QueueRun& queue, const BoundCall& bound, std::int64_t iteration) {
  const std::int64_t step = steps_.run(iteration).step;
  const bool measured = watchers_.notes_waits(queue.info, step) && steps_.run(iteration).begins_step();
  HeldUp held;
  std::size_t number = 0;
  const auto pass_edge = [&] {
    const std::size_t wait = number++;
    if (!measured || !is_edge(queues_.plan(), *bound.call, wait)) return;
    held.end = probe_clock();
    if (held.by >= 0) queue.held_up_in(step).push_back(held);
    held = {counted_wait(queues_.plan(), *bound.call, wait), held.end, 0};
  };
  for (const BoundWait& waits : bound.waits) {
    pass_edge();
    const Wait& wait = *waits.wait;
    if (iteration < wait.steps_ago) continue;
    watchers_.tell(
        [&](Probe& probe, double at) { probe.begin_wait(queue.index, *bound.call, wait, step, at); });
    waits.other->ticket.await(waits.other->ticket_of(iteration - wait.steps_ago, wait.call));
    watchers_.tell(
        [&](Probe& probe, double at) { probe.end_wait(queue.index, *bound.call, wait, step, at); });
  }
  pass_edge();
}

Status BlockingQueues::launch(QueueRun& queue, const Call& call, const BoundSide& side, std::int64_t step) {
  for (std::size_t i = 0; i < side.works->size(); ++i) {
    if (poison_) poison_->before(*side.piece, i);
    Status status = queue.device.run(queue.handle, (*side.works)[i]);
    if (status.ok() && poison_) status = poison_->after(call, *side.piece, i);
    if (!status.ok()) return status;
    if (watchers_.one_by_one(step))
      watchers_.tell([&](Probe& probe, double at) { probe.end_kernel(queue.index, call, i, at); });
  }
  return {};
}

Status BlockingQueues::exchange(QueueRun& queue, const BoundPiece& piece) {
  for (std::size_t i = 0; i < piece.ends.size(); ++i) {
    Status status;
    for (const CommOp& op : piece.exchange(i))
      if (status.ok()) status = exchange(queue, op);
    watchers_.tell([&](Probe& probe, double at) { probe.waits(queue.index, false, at); });
    if (!status.ok()) return status;
    if (poison_) Poison::spoil(piece, i);
  }
  return {};
}

Status BlockingQueues::exchange(QueueRun& queue, const CommOp& op) {
  const auto wire = [&](const CommOp& here) {
    const Status status = queue.comm.comm->start(queue.comm.communicator, &here, 1, queue.stream);
    if (!status.ok()) return status;
    watchers_.tell([&](Probe& probe, double at) { probe.waits(queue.index, true, at); });
    return queue.comm.comm->finish(queue.comm.communicator);
  };
  return queue.staging ? queue.staging->exchange(op, wire) : wire(op);
}

}  // namespace prun
