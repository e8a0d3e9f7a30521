#include "plan/order/order.hpp"

#include <algorithm>
#include <span>

#include "plan/order/stretches.hpp"

namespace prun {
namespace {

// Is a stretch of bytes with its last write, and the reads since.
struct Stretch {
  std::int64_t end = 0;
  std::int32_t writer = -1;  // queue of the last write
  std::int64_t written = -1;
  Numbered<std::int64_t> reads;  // latest reads by queue; -1: none since the write
};

class Waits {
 public:
  Waits(const Program& program, Plan& plan)
      : program_(program),
        plan_(plan),
        queues_(plan.queues.size()),
        steps_(plan.overlaps ? plan.staging_copies + 1 : 2),
        clocks_(queues_, Clock(queues_, -1)) {
    for (const QueueInfo& queue : plan.queues)
      history_.emplace_back(static_cast<std::size_t>(steps_ * queue.calls) * queues_, -1);
  }

  // Visits two steps: the waits of the second hold for every later one, and those for calls of the first are
  // for calls of the step before. Where steps overlap, buffers have several copies, and only after as many
  // steps the first copy is used again.
  void run() {
    for (step_ = 0; step_ < steps_; ++step_)
      for (Call& call : plan_.calls) visit(call);
  }

 private:
  using Clock = std::vector<std::int64_t>;  // latest ticket of each queue that is known to be done

  std::int64_t ticket(const Call& call, std::int64_t step) const {
    return step * plan_.queues[call.queue].calls + call.position;
  }

  void visit(Call& call) {
    const auto own = static_cast<std::size_t>(call.queue);
    const std::int64_t now = ticket(call, step_);
    Clock& clock = clocks_[own];
    find_uses(program_, plan_, call, plan_.side_of(step_), UsesOf::this_rank, uses_);
    Clock& needed = needed_;
    needed.assign(queues_, -1);
    for (const ByteUse& use : uses_) require(use, needed);
    call.waits.clear();
    // Adds the wait that implies most first, so that the others may be needless.
    for (;;) {
      std::size_t best = queues_;
      for (std::size_t q = 0; q < queues_; ++q)
        if (q != own && needed[q] > clock[q] &&
            (best == queues_ || implies(q, needed[q], best, needed[best])))
          best = q;
      if (best == queues_) break;
      add_wait(call, best, needed[best]);
      join(clock, known_by(best, needed[best]));
    }
    clock[own] = now;
    std::copy(clock.begin(), clock.end(), known_by(own, now).begin());
    for (const ByteUse& use : uses_) record(use, call.queue, now);
  }

  // Returns true if a wait for ticket `a` of queue q implies one for ticket `b` of queue p.
  bool implies(std::size_t q, std::int64_t a, std::size_t p, std::int64_t b) {
    return known_by(q, a)[p] >= b;
  }

  // Returns the latest ticket of each queue that is done once this one is.
  std::span<std::int64_t> known_by(std::size_t queue, std::int64_t ticket) {
    return std::span(history_[queue]).subspan(static_cast<std::size_t>(ticket) * queues_, queues_);
  }

  void add_wait(Call& call, std::size_t queue, std::int64_t ticket) const {
    const std::int64_t calls = plan_.queues[queue].calls;
    call.waits.push_back({static_cast<std::int32_t>(queue), static_cast<std::int32_t>(ticket % calls),
                          static_cast<std::int32_t>(step_ - ticket / calls)});
  }

  static void join(Clock& clock, std::span<const std::int64_t> other) {
    for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
  }

  // ------------------------------------------------------------- bytes

  void require(const ByteUse& use, Clock& needed) {
    for (auto it = memory_.in(use); it != memory_.end() && it->first < use.end; ++it) {
      const Stretch& s = it->second;
      if (s.writer >= 0) {
        std::int64_t& of_writer = needed[s.writer];
        of_writer = std::max(of_writer, s.written);
      }
      if (use.writes)
        for (std::size_t q = 0; q < s.reads.size(); ++q) needed[q] = std::max(needed[q], s.reads[q]);
    }
  }

  void record(const ByteUse& use, std::int32_t queue, std::int64_t now) {
    const auto first = memory_.in(use);
    if (use.writes) {
      if (first != memory_.end() && first->first == use.begin) {
        memory_.erase(std::next(first), memory_.lower_bound(use.end));
        Stretch& stretch = first->second;
        stretch.end = use.end;
        stretch.writer = queue;
        stretch.written = now;
        std::fill(stretch.reads.begin(), stretch.reads.end(), -1);
        return;
      }
      memory_.erase(first, memory_.lower_bound(use.end));
      memory_[use.begin] = {use.end, queue, now, Clock(queues_, -1)};
      return;
    }
    std::int64_t covered = use.begin;
    for (auto it = first; it != memory_.end() && it->first < use.end; ++it) {
      if (it->first > covered) add_reader(covered, it->first, queue, now);
      it->second.reads[queue] = now;
      covered = it->second.end;
    }
    if (covered < use.end) add_reader(covered, use.end, queue, now);
  }

  // Records a read of bytes that were not written before in the steps visited, such as parameters.
  void add_reader(std::int64_t begin, std::int64_t end, std::int32_t queue, std::int64_t now) {
    Stretch fresh{end, -1, -1, Clock(queues_, -1)};
    fresh.reads[queue] = now;
    memory_.emplace(begin, std::move(fresh));
  }

  const Program& program_;
  Plan& plan_;
  std::size_t queues_;
  const std::int64_t steps_;
  std::int64_t step_ = 0;
  std::vector<Clock> clocks_;
  std::vector<Clock> history_;  // by queue and ticket: a number for each queue
  std::vector<ByteUse> uses_;   // uses of the call at hand
  Clock needed_;
  Stretches<Stretch> memory_;
};

}  // namespace

namespace {

// Lets calls of `speculate` be skipped once the step's `update` has copied what `finish` found: only
// functions of one call, which run completely or not at all.
void leave_out_what_is_late(Plan& plan) {
  constexpr std::int32_t step_instance = 0;
  const auto is_of = [&](const Call& call, FunctionKind kind, bool of_step) {
    return plan.functions[call.function].kind == kind && (call.instance == step_instance) == of_step;
  };
  const auto known = std::find_if(plan.calls.rbegin(), plan.calls.rend(),
                                  [&](const Call& call) { return is_of(call, FunctionKind::update, true); });
  if (known == plan.calls.rend()) return;
  const Wait copied{known->queue, known->position, 0};
  for (Call& call : plan.calls)
    if (is_of(call, FunctionKind::speculate, false) && plan.functions[call.function].pieces.size() == 1)
      call.unless = copied;
}

}  // namespace

void derive_waits(const Program& program, Plan& plan) {
  Waits(program, plan).run();
  leave_out_what_is_late(plan);
}

}  // namespace prun
