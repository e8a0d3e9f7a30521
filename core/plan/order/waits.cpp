#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plan/order/order.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- stretches
// Records who used which bytes, from which waits follow. Bytes with the same users form a stretch. Example: a
// write of [0, 100) and a read of [50, 80) give three stretches; the next write of [60, 70) must wait for
// that read.

// ------------------------------------------------------------ call uses

// Is a range of the arena that a call touches.
struct ByteUse {
  std::int64_t begin = 0, end = 0;
  bool writes = false;
};

// Finds what a call reads and writes, writes first, with adjacent ranges merged. `side`: which copy of the
// buffers the step has. Accesses of the host are not included: it writes before a step starts, and reads when
// the step is done. `all_ranks` gives a result that is the same on all ranks: it takes all shards of a flat
// range instead of the rank's own, and no workspaces, whose size depends on a rank's threads and which only
// calls of one queue share.
enum class UsesOf : std::uint8_t { this_rank, all_ranks };

// Maps where a stretch begins to its users; `Users::end` is where it ends. Stretches do not overlap.
template <class Users>
class Stretches : public std::map<std::int64_t, Users> {
 public:
  using Place = typename std::map<std::int64_t, Users>::iterator;

  // Returns the first stretch within the bytes used, after splitting those that cross their ends. The first
  // test is for speed: most uses are of exactly one stretch.
  Place in(const ByteUse& use) {
    const Place whole = this->lower_bound(use.begin);
    if (whole != this->end() && whole->first == use.begin && whole->second.end == use.end) return whole;
    split(use.begin);
    split(use.end);
    return this->lower_bound(use.begin);
  }

 private:
  void split(std::int64_t at) {
    Place it = this->lower_bound(at);
    if (it == this->begin()) return;
    --it;
    if (it->second.end <= at) return;
    Users right = it->second;
    it->second.end = at;
    this->emplace(at, std::move(right));
  }
};

void merge(std::vector<ByteUse>& uses) {
  std::sort(uses.begin(), uses.end(), [](const ByteUse& a, const ByteUse& b) {
    return a.writes != b.writes ? a.writes > b.writes : a.begin < b.begin;
  });
  std::size_t kept = 0;
  for (const ByteUse& use : uses) {
    if (kept > 0 && uses[kept - 1].writes == use.writes && use.begin <= uses[kept - 1].end)
      uses[kept - 1].end = std::max(uses[kept - 1].end, use.end);
    else
      uses[kept++] = use;
  }
  uses.resize(kept);
}

bool is_workspace(const PlannedStep& step, const Address& dead) {
  return step.workspace.bytes > 0 && dead.region == step.workspace.region &&
         dead.range == step.workspace.range && dead.offset == step.workspace.offset &&
         dead.bytes == step.workspace.bytes;
}

void find_uses(const Program& program, const Plan& plan, const Call& call, int side, UsesOf whose,
               std::vector<ByteUse>& uses) {
  uses.clear();
  const bool own = whose == UsesOf::this_rank;
  const auto add = [&](const Address& address, bool writes) {
    if (address.bytes == 0) return;
    std::int64_t at = plan.resolve(call, address, side), bytes = address.bytes;
    if (!own) {
      at -= plan.part_of(address) * bytes;
      bytes *= plan.parts_of(address);
    }
    uses.push_back({at, at + bytes, writes});
  };
  for (const PlannedStep& step : plan.steps(call)) {
    if (step.exchange) {
      add(step.exchange->in, false);
      add(step.exchange->out, true);
    } else {
      const Op& op = program.op(step.op);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] != none) add(step.operands[i].address, op.access(i) != Access::read);
      if (own) add(step.workspace, true);
    }
    for (const Address& dead : step.dead_after)
      if (own || !is_workspace(step, dead)) add(dead, true);
    for (const Fence& fence : step.fences)
      if (own || fence.operand >= 0) add(fence.bytes, true);
  }
  merge(uses);
}

// ------------------------------------------------------------------- waits

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

namespace {

// ------------------------------------------------------------------- side by side

using CallNumber = std::int32_t;

// Finds for each call those that must come before it: they touch the same bytes, and one of the two writes.
class Precedence {
 public:
  Precedence(const Program& program, const Plan& plan, std::span<const Call> calls) {
    std::vector<ByteUse> uses;
    for (const Call& call : calls) {
      before_.emplace_back();
      find_uses(program, plan, call, 0, UsesOf::all_ranks, uses);
      for (const ByteUse& use : uses) require(use);
      for (const ByteUse& use : uses) record(use);
      std::vector<CallNumber>& found = before_.back();
      std::sort(found.begin(), found.end());
      found.erase(std::unique(found.begin(), found.end()), found.end());
    }
  }

  std::vector<std::vector<CallNumber>> take() { return std::move(before_); }

 private:
  struct Users {
    std::int64_t end = 0;
    CallNumber writer = -1;
    std::vector<CallNumber> readers;  // reads since that write
  };
  using Place = Stretches<Users>::Place;

  CallNumber now() const { return static_cast<CallNumber>(before_.size()) - 1; }

  void require(const ByteUse& use) {
    for (Place it = memory_.in(use); it != memory_.end() && it->first < use.end; ++it) {
      const Users& users = it->second;
      if (users.writer >= 0) before_.back().push_back(users.writer);
      if (use.writes) before_.back().insert(before_.back().end(), users.readers.begin(), users.readers.end());
    }
  }

  void record(const ByteUse& use) {
    const Place first = memory_.in(use);
    if (use.writes) {
      memory_.erase(first, memory_.lower_bound(use.end));
      memory_[use.begin] = {use.end, now(), {}};
      return;
    }
    std::int64_t covered = use.begin;
    for (Place it = first; it != memory_.end() && it->first < use.end; ++it) {
      if (it->first > covered) memory_[covered] = {it->first, -1, {now()}};
      it->second.readers.push_back(now());
      covered = it->second.end;
    }
    if (covered < use.end) memory_[covered] = {use.end, -1, {now()}};
  }

  Stretches<Users> memory_;
  std::vector<std::vector<CallNumber>> before_;
};

// Simulates the step with nominal times (list scheduling). Of the calls that a queue could begin next it
// takes the one that leads to a collective soonest, so that this travels while the queue does the others.
class Interleaver {
 public:
  Interleaver(const Program& program, const Plan& plan, std::span<const Call> calls)
      : plan_(plan),
        calls_(calls),
        before_(Precedence(program, plan, calls).take()),
        behind_(calls.size()),
        left_(calls.size()),
        ready_at_(calls.size()),
        queues_(plan.queues.size()) {
    for (std::size_t c = 0; c < before_.size(); ++c) {
      left_[c] = before_[c].size();
      for (const CallNumber other : before_[c]) behind(other).push_back(static_cast<CallNumber>(c));
    }
    take_times(program);
    find_ways_to_exchanges();
  }

  std::vector<Call> run() {
    std::vector<Call> ordered;
    for (std::size_t c = 0; c < left_.size(); ++c)
      if (left_[c] == 0) add(static_cast<CallNumber>(c));
    for (std::size_t n = 0; n < calls_.size(); ++n) {
      Queue& queue = soonest();
      queue.advance(ways_);
      const CallNumber call = queue.take();
      ordered.push_back(calls_[call]);
      finish(call, queue.free_at += seconds(call));
    }
    return ordered;
  }

 private:
  struct Queue {
    double free_at = 0;
    std::set<std::pair<double, CallNumber>> later;  // calls by the time when all before them are done
    std::set<std::pair<double, CallNumber>> now;    // calls that could begin, by way to an exchange

    double next_begin() const {
      if (!now.empty()) return free_at;
      if (later.empty()) return std::numeric_limits<double>::infinity();
      return std::max(free_at, later.begin()->first);
    }
    // Advances the clock to the next call's begin, and moves calls that could begin then to `now`.
    void advance(const Numbered<double>& ways) {
      free_at = next_begin();
      for (; !later.empty() && later.begin()->first <= free_at; later.erase(later.begin()))
        now.insert({ways[later.begin()->second], later.begin()->second});
    }
    CallNumber take() {
      const CallNumber call = now.begin()->second;
      now.erase(now.begin());
      return call;
    }
  };

  std::vector<CallNumber>& behind(CallNumber call) { return behind_[call]; }
  double seconds(CallNumber call) const { return seconds_[call]; }
  double way(CallNumber call) const { return ways_[call]; }

  void take_times(const Program& program) {
    std::map<std::pair<std::int32_t, std::int32_t>, double> of_pieces;
    for (const Call& call : calls_) {
      const auto [known, fresh] = of_pieces.try_emplace({call.function, call.piece});
      if (fresh)
        for (const PlannedStep& step : plan_.steps(call)) known->second += nominal_seconds(program, step);
      seconds_.push_back(known->second);
    }
  }

  // Finds for each call the time from its begin to that of the first collective that depends on it.
  void find_ways_to_exchanges() {
    ways_.assign(calls_.size(), std::numeric_limits<double>::infinity());
    for (std::size_t c = ways_.size(); c-- > 0;) {
      if (plan_.queues[calls_[c].queue].communicates()) {
        ways_[c] = 0;
        continue;
      }
      for (const CallNumber next : behind_[c]) ways_[c] = std::min(ways_[c], seconds_[c] + way(next));
    }
  }

  void add(CallNumber call) {
    const auto at = static_cast<std::size_t>(call);
    queues_[calls_[at].queue].later.insert({ready_at_[at], call});
  }

  // Returns the queue whose next call begins first.
  Queue& soonest() {
    return *std::min_element(queues_.begin(), queues_.end(),
                             [](const Queue& a, const Queue& b) { return a.next_begin() < b.next_begin(); });
  }

  void finish(CallNumber call, double at) {
    for (const CallNumber next : behind(call)) {
      double& ready = ready_at_[next];
      ready = std::max(ready, at);
      if (--left_[next] == 0) add(next);
    }
  }

  const Plan& plan_;
  const std::span<const Call> calls_;
  Numbered<std::vector<CallNumber>> before_, behind_;
  Numbered<std::size_t> left_;  // calls left before each
  Numbered<double> ready_at_, seconds_, ways_;
  Numbered<Queue> queues_;
};

}  // namespace

// Calls after the passes belong to the step, not to a microbatch, and keep their order.
void order_interleaved(const Program& program, Plan& plan) {
  const auto follows = [&](const Call& call) {
    const FunctionKind kind = plan.functions[call.function].kind;
    return kind == FunctionKind::norm || kind == FunctionKind::finish;
  };
  const auto passes = std::find_if(plan.calls.begin(), plan.calls.end(), follows);
  std::vector<Call> ordered = Interleaver(program, plan, {plan.calls.begin(), passes}).run();
  std::move(ordered.begin(), ordered.end(), plan.calls.begin());
  for (QueueInfo& queue : plan.queues) queue.calls = 0;
  for (Call& call : plan.calls) call.position = plan.queues[call.queue].calls++;
}

}  // namespace prun
