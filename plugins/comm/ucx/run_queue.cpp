// All members take up operations that need scratch in the same order.
#include "run_queue.hpp"

#include <algorithm>
#include <memory>

namespace prun::ucx {

// ------------------------------------------------------------------- run
// Counts down what each step waits for.

Run::Run(const Plan& plan) : plan_(&plan), steps_(plan.steps.size()) {}

void Run::begin(const CommOp& op, std::uint64_t tag, std::uint32_t number) {
  op_ = op;
  tag_ = tag;
  number_ = number;
  buffers_ = {static_cast<std::byte*>(const_cast<void*>(op.in)), static_cast<std::byte*>(op.out), nullptr};
  left_ = steps_.size();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].run = this;
    steps_[i].step = static_cast<StepId>(i);
    steps_[i].waits_for = plan_->steps[i].waits_for;
  }
}

void Run::add_first(std::vector<RunningStep*>& ready) {
  for (RunningStep& step : steps_)
    if (step.waits_for == 0) ready.push_back(&step);
}

void Run::finish(const RunningStep& step, std::vector<RunningStep*>& ready) {
  --left_;
  const Step& planned = plan_->steps[static_cast<std::size_t>(step.step)];
  for (std::uint32_t i = planned.next_begin; i < planned.next_end; ++i) {
    RunningStep& after = steps_[static_cast<std::size_t>(plan_->next[i])];
    if (--after.waits_for == 0) ready.push_back(&after);
  }
}

// ------------------------------------------------------------------- library
// Implements key and look-up, and alone maps a kind to its algorithm.

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

namespace {

// ------------------------------------------------------------------- shutdown notice
// Each member has one receive, posted from the start.

constexpr std::chrono::milliseconds patience{200};

std::uint64_t tag_of(std::int32_t sender) {
  return add_message(make_tag(Traffic::shutdown_notice, 0), sender, 0);
}

}  // namespace

ShutdownNotices::ShutdownNotices(std::int32_t rank, std::int32_t size)
    : rank_(rank), received_(static_cast<std::size_t>(size)), sent_(static_cast<std::size_t>(size)) {}

void ShutdownNotices::listen(Wire& wire) {
  for (std::size_t i = 0; i < received_.size(); ++i) {
    received_[i].listener = sent_[i].listener = this;
    const auto member = static_cast<std::int32_t>(i);
    if (member != rank_)
      wire.post_receive(tag_of(member), &received_[i].message, sizeof(ShutdownNotice), received_[i]);
  }
}

void ShutdownNotices::send(Wire& wire) {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    const auto member = static_cast<std::int32_t>(i);
    if (member != rank_ && !received_[i].done && wire.state_of(member) == UCS_OK)
      wire.post_send(member, tag_of(rank_), &sent_[i].message, sizeof(ShutdownNotice), sent_[i]);
  }
  settle(wire, sent_);
  settle(wire, received_);  // most leave together: what arrives after the cancelling would be an orphan
  for (Note& note : received_) wire.cancel(note);
  settle(wire, received_);
}

void ShutdownNotices::settle(Wire& wire, const std::vector<Note>& notes) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (const Note& note : notes) wire.progress_while([&] { return note.request != nullptr; }, end);
}

void ShutdownNotices::on_done(Transfer& transfer, ucs_status_t status) noexcept {
  if (status == UCS_OK) static_cast<Note&>(transfer).done = true;
}

namespace {

// ------------------------------------------------------------------- scratch
// Allocates by first fit, so that repeated operations find blocks that have their size already.

constexpr std::size_t page = 4096;

}  // namespace

std::byte* ScratchPool::Block::start() const {
  void* first = memory.get();
  std::size_t room = static_cast<std::size_t>(bytes) + page;
  return static_cast<std::byte*>(std::align(page, static_cast<std::size_t>(bytes), first, room));
}

std::byte* ScratchPool::take(std::int64_t bytes) {
  Block* chosen = nullptr;
  for (Block& block : blocks_) {
    if (block.used) continue;
    if (!chosen || (chosen->bytes < bytes && block.bytes > chosen->bytes)) chosen = &block;
    if (chosen->bytes >= bytes) break;
  }
  if (!chosen) return nullptr;
  if (chosen->bytes < bytes) {
    chosen->memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes) + page);
    chosen->bytes = bytes;
  }
  chosen->used = true;
  return chosen->start();
}

void ScratchPool::give_back(const std::byte* block) {
  for (Block& candidate : blocks_)
    if (candidate.used && candidate.start() == block) candidate.used = false;
}

// ------------------------------------------------------------------- run queue

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

ShutdownNotice RunQueue::started_with(std::int32_t member) const {
  const Peer& peer = peers_[static_cast<std::size_t>(member)];
  return {collectives_, peer.sends, peer.receives, 0};
}

// ------------------------------------------------------------------- member watch
// Asks the system about processes, UCX about connections, and reads shutdown notices.

std::optional<Trouble> MemberWatch::look(Wire& wire, const RunQueue& runs) {
  std::optional<Trouble> trouble = look_for_lost(wire);
  return trouble ? trouble : look_for_left(runs);
}

// A shutdown notice may be among messages that arrived and were not looked at; so may what its sender sent
// before.
std::optional<Trouble> MemberWatch::look_for_lost(Wire& wire) const {
  for (std::int32_t i = 0; i < size(); ++i) {
    if (i == rank_ || notices_.has_left(i)) continue;
    const bool gone = peer(i).watched && !peer(i).process.running();
    const ucs_status_t state = wire.state_of(i);
    if (!gone && state == UCS_OK) continue;
    while (wire.progress()) {
    }
    if (notices_.has_left(i)) continue;
    return Trouble{i, gone ? "its process is gone; the end of its log says why"
                           : std::string("the connection is lost: ") + ucs_status_string(state)};
  }
  return std::nullopt;
}

std::optional<Trouble> MemberWatch::look_for_left(const RunQueue& runs) {
  for (std::int32_t i = 0; i < size(); ++i) {
    if (i == rank_ || !notices_.has_left(i)) continue;
    // This is not reported at first sight: the member whose death made that one give up is the better news.
    bool& gave_up = peer(i).gave_up;
    if (gave_up) return Trouble{i, "it has given up; its own message says why"};
    gave_up = notices_.from(i).failed;
    if (gave_up) continue;
    for (const Run* run : runs.active())
      if (!run->done() && needs(*run, i)) return Trouble{i, "it left before this operation"};
  }
  return std::nullopt;
}

bool MemberWatch::needs(const Run& run, std::int32_t member) const {
  const ShutdownNotice& shutdown_notice = notices_.from(member);
  switch (run.op().kind) {
    case CommKind::send: return run.op().peer == member && run.number() >= shutdown_notice.received;
    case CommKind::recv: return run.op().peer == member && run.number() >= shutdown_notice.sent;
    default: return run.number() >= shutdown_notice.collectives;
  }
}

void MemberWatch::say_goodbye(Wire& wire, const RunQueue& runs, bool broken) {
  for (std::int32_t i = 0; i < size(); ++i) {
    notices_.to(i) = runs.started_with(i);
    notices_.to(i).failed = broken;
  }
  notices_.send(wire);
}

}  // namespace prun::ucx
