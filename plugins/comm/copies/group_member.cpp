#include "group_member.hpp"

#include <chrono>

#include "lanes.hpp"
#include "prun/plugin.hpp"

namespace prun::copies {
namespace {

using namespace std::chrono_literals;

void pause(int round) {
  if (round < 500)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(20us);
}

}  // namespace

GroupMember::GroupMember(const Driver& driver, const CommGroup& group, const Settings& settings)
    : name_(group.name.view()),
      layout_(settings.layout(group.rank, group.size, group.groups)),
      meeting_(group, layout_.buffer_bytes(), settings.direct, aborted_),
      lanes_(driver, layout_, meeting_.reach(), settings.blocks, [this] { check(); }) {
  if (meeting_.wires()) destinations_.emplace(driver, layout_, *meeting_.wires());
}

// Others may be copying into this member's memory only while it waits for them, and it waits no more; but the
// driver wants a buffer closed everywhere before it is freed.
GroupMember::~GroupMember() {
  if (!wait_for_the_gpu()) {
    log_line("comm copies: group '", name_,
             "': the GPU still waits for other members, so its memory is never freed: ", state());
    if (destinations_) destinations_->abandon();
    meeting_.abandon();
  }
  meeting_.leave();
  own_words().closed.store(1);
  wait_for_the_others();
  ends_.store(true);
  if (releaser_.joinable()) releaser_.join();
}

// Returns whether nothing is left there, as it must be soon.
bool GroupMember::wait_for_the_gpu() const {
  const auto end = Clock::now() + 10s;
  while (!lanes_.is_idle() && Clock::now() < end) std::this_thread::sleep_for(100us);
  return lanes_.is_idle();
}

// A member that died closes nothing.
void GroupMember::wait_for_the_others() const {
  const auto end = Clock::now() + (aborted_.load() ? 300ms : 1000ms);
  for (std::int32_t k = 1; k < layout_.size(); ++k)
    while (words(layout_.next(k)).closed.load() == 0 && Clock::now() < end)
      std::this_thread::sleep_for(100us);
}

// ---------------------------------------------------------------- memory

void GroupMember::attach(void* base) {
  if (!destinations_) return;
  const std::string problem = destinations_->attach(base);
  if (!problem.empty() && layout_.rank() == 0)
    log_line("comm copies: what arrives for '", name_,
             "' is copied once more, as memory is not shared: ", problem);
}

// Others may not be aborted yet, and what they let this member write is on its way.
void GroupMember::detach() {
  if (!destinations_) return;
  if (wait_for_the_gpu()) destinations_->detach();
}

void GroupMember::prepare(std::span<const CommOp> ops) {
  if (destinations_) destinations_->prepare(ops);
}

// ---------------------------------------------------------------- operations

void GroupMember::run(std::span<const CommOp> ops, std::span<const Places> places, cudaStream_t stream) {
  check();
  lanes_.use(stream);
  try {
    Schedule(layout_, lanes_).run(ops, places);
  } catch (const Error&) {
    lanes_.mark_end();  // part of the list was given: its memory is in use until then
    throw;
  }
  lanes_.mark_end();
}

void GroupMember::start(std::span<const CommOp> ops, cudaStream_t stream) {
  run(ops, destinations_ ? destinations_->of(ops) : std::span<const Places>(), stream);
  for (const CommOp& op : ops) {
    const Traffic traffic = traffic_of(op, layout_);
    ++counters_.operations;
    counters_.bytes_sent += traffic.sent;
    counters_.bytes_received += traffic.received;
  }
}

void GroupMember::connect(std::span<const CommOp> ops, cudaStream_t stream) {
  for (const CommOp& op : ops) check_can_fold(op, "group '" + name_ + "': ");
  for (std::size_t i = 0; i < ops.size(); ++i) {
    run(ops.subspan(i, 1), {}, stream);
    for (int round = 0;; ++round) {
      const cudaError_t status = cudaStreamQuery(stream);
      if (status == cudaSuccess) break;
      if (status != cudaErrorNotReady) cuda::check(status, "connecting");
      check();
      pause(round);
    }
  }
}

// ---------------------------------------------------------------- giving up

void GroupMember::abort() {
  const std::scoped_lock lock(aborting_);
  if (aborted_.exchange(true)) return;
  own_words().aborted.store(1);
  releaser_ = std::thread([this] { release_all(); });
}

// A lane that is released goes on with memory that nobody filled, and sends it: so the others must know that
// this member has given up before it is. One that is dead, or busy for long, is not waited for. Numbers that
// the others still write are smaller, and must not be the last.
void GroupMember::release_all() {
  const auto end = Clock::now() + 2s;
  while (!all_know() && !ends_.load() && Clock::now() < end) std::this_thread::sleep_for(200us);
  while (!ends_.load()) {
    for (std::int32_t i = 0; i < layout_.size(); ++i) {
      own_words().arrived[i].store(released);
      own_words().freed[i].store(released);
      own_words().granted[i].store(released);
      own_words().landed[i].store(released);
    }
    std::this_thread::sleep_for(1ms);
  }
}

bool GroupMember::all_know() const {
  for (std::int32_t k = 1; k < layout_.size(); ++k) {
    const MemberWords& of = words(layout_.next(k));
    if (!of.aborted.load() && !of.noticed.load() && !of.closed.load()) return false;
  }
  return true;
}

void GroupMember::check() {
  if (aborted_.load()) throw_error(ErrorCode::comm_failed, "comm copies: group '", name_, "' was aborted");
  for (std::int32_t i = 0; i < layout_.size(); ++i) {
    if (!words(i).aborted.load()) continue;
    own_words().noticed.store(1);
    throw_error(ErrorCode::comm_failed, "comm copies: group '", name_, "': member ", i, " has given up");
  }
}

}  // namespace prun::copies
