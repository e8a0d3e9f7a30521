#include "plan/order/order.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "plan/nominal_time.hpp"
#include "plan/order/stretches.hpp"

namespace prun {
namespace {

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
class SideBySide {
 public:
  SideBySide(const Program& program, const Plan& plan, std::span<const Call> calls)
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
void order_side_by_side(const Program& program, Plan& plan) {
  const auto follows = [&](const Call& call) {
    const FunctionKind kind = plan.functions[call.function].kind;
    return kind == FunctionKind::norm || kind == FunctionKind::finish;
  };
  const auto passes = std::find_if(plan.calls.begin(), plan.calls.end(), follows);
  std::vector<Call> ordered = SideBySide(program, plan, {plan.calls.begin(), passes}).run();
  std::move(ordered.begin(), ordered.end(), plan.calls.begin());
  for (QueueInfo& queue : plan.queues) queue.calls = 0;
  for (Call& call : plan.calls) call.position = plan.queues[call.queue].calls++;
}

}  // namespace prun
