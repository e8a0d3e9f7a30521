#include "estimate/moved_bytes.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace prun {

// ------------------------------------------------------------------- moved bytes

std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members) {
  const std::int64_t bytes = exchange.count * size_of(exchange.dtype);
  const bool counts_a_part = exchange.kind == CommKind::all_gather ||
                             exchange.kind == CommKind::reduce_scatter ||
                             exchange.kind == CommKind::all_to_all;
  return counts_a_part ? bytes * members : bytes;
}

namespace {

bool copies(const Program& program, const PlannedStep& step) {
  return step.kernel && program.op(step.op).def->copies;
}

MemoryPlace place_of(const Plan& plan, const PlannedOperand& operand) {
  return plan.layout.ranges[operand.address.range].place;
}

}  // namespace

Direction direction_of(const Program& program, const Plan& plan, const PlannedStep& step) {
  constexpr MemoryPlace own{0, Space::device};
  if (!copies(program, step)) return Direction::stays;
  const bool from = place_of(plan, step.operands.front()) == own,
             to = place_of(plan, step.operands.back()) == own;
  return from == to ? Direction::stays : from ? Direction::to_host : Direction::to_device;
}

bool reads_disk(const Program& program, const Plan& plan, const PlannedStep& step) {
  return copies(program, step) && place_of(plan, step.operands.front()).space == Space::disk;
}

MovedBytes moved_bytes(const Program& program, const Plan& plan) {
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!copies(program, step)) continue;
      const std::int64_t bytes = step.operands.front().address.bytes;
      const Direction direction = direction_of(program, plan, step);
      if (direction == Direction::to_host) moved.to_host += bytes;
      if (direction == Direction::to_device) moved.to_device += bytes;
      if (reads_disk(program, plan, step)) moved.from_disk += bytes;
      if (place_of(plan, step.operands.back()).space == Space::disk) moved.to_disk += bytes;
    }
  return moved;
}

std::int32_t link_of(const Program& program, const Plan& plan, const PlannedStep& step) {
  if (!copies(program, step)) return -1;
  const auto number = [](std::int32_t device, bool out) { return 2 * device + (out ? 1 : 0); };
  const MemoryPlace from = place_of(plan, step.operands.front()), to = place_of(plan, step.operands.back());
  if (from.space == Space::disk) return number(from.device, true);
  if (to.space == Space::disk) return number(to.device, false);
  const Direction direction = direction_of(program, plan, step);
  return direction == Direction::stays ? -1 : number(0, direction == Direction::to_host);
}

double host_bytes(const Program& program, const Plan& plan, const PlannedStep& step,
                  const Numbered<bool>& on_host) {
  const auto is_on_host = [&](std::int32_t device) { return on_host.at(device); };
  const auto lies_there = [&](const PlannedOperand& operand) {
    const MemoryPlace place = place_of(plan, operand);
    return place.space == Space::pinned || place.space == Space::host ||
           (place.space == Space::device && is_on_host(place.device));
  };
  if (copies(program, step)) {
    const PlannedOperand &from = step.operands.front(), &to = step.operands.back();
    const int sides = (lies_there(from) ? 1 : 0) + (lies_there(to) ? 1 : 0);
    return sides * from.address.bytes;
  }
  if (!step.kernel || step.device == 0 || !is_on_host(step.device)) return 0;
  const Op& op = program.op(step.op);
  return op.cost(program.local_shape(op)).bytes;
}

namespace {

// ------------------------------------------------------------------- links

struct Work {
  double begin = 0, end = 0;
};

class Reader {
 public:
  explicit Reader(const RankTimes& rank) : rank_(rank), plan_(*rank.simulated.plan) {
    for (const Call& call : plan_.calls) {
      calls_[{call.queue, call.position}] = &call;
      if (const Direction direction = direction_of(call); direction != Direction::stays)
        of_queue_[call.queue] = direction;
    }
    for (const Event& event : rank.events) {
      last_ = std::max(last_, event.step);
      if (event.waits_for < 0) works_[event.queue].push_back({event.begin, event.end});
    }
  }

  Links read() const {
    Links links;
    for (const Event& event : rank_.events) {
      if (event.step != last_) continue;
      const double seconds = event.end - event.begin;
      if (event.waits_for < 0)
        add_call(links, *calls_.at({event.queue, event.position}), seconds);
      else if (computes(event.queue))
        add_wait(links, event);
    }
    return links;
  }

 private:
  // The direction of a call is that of its queue.
  Direction direction_of(const Call& call) const {
    for (const PlannedStep& step : plan_.steps(call))
      if (const Direction direction = prun::direction_of(*rank_.simulated.program, plan_, step);
          direction != Direction::stays)
        return direction;
    return Direction::stays;
  }

  bool computes(std::int32_t queue) const {
    const QueueInfo& info = plan_.queues[queue];
    return info.workers && info.device == 0;
  }

  static LinkTimes* link_times_of(Links& links, Direction direction) {
    if (direction == Direction::stays) return nullptr;
    return direction == Direction::to_host ? &links.to_host : &links.to_device;
  }

  void add_call(Links& links, const Call& call, double seconds) const {
    const FunctionKind kind = plan_.functions[call.function].kind;
    const Direction direction = direction_of(call);
    if (LinkTimes* const times = link_times_of(links, direction)) times->busy += seconds;
    links.grow |= kind == FunctionKind::put_away && direction != Direction::stays;
    const bool passes = kind == FunctionKind::forward || kind == FunctionKind::backward ||
                        kind == FunctionKind::backward_weight;
    if (passes && computes(call.queue)) links.passes += seconds;
  }

  // Counts a wait, except while the other queue waits itself: then the link is not the cause.
  void add_wait(Links& links, const Event& wait) const {
    const auto found = of_queue_.find(wait.waits_for);
    if (found == of_queue_.end()) return;
    const std::vector<Work>& works = works_.at(wait.waits_for);
    const auto is_over = [&](const Work& work) { return work.end <= wait.begin; };
    for (auto work = std::partition_point(works.begin(), works.end(), is_over);
         work != works.end() && work->begin < wait.end; ++work)
      link_times_of(links, found->second)->exposed +=
          std::min(work->end, wait.end) - std::max(work->begin, wait.begin);
  }

  const RankTimes& rank_;
  const Plan& plan_;
  std::map<std::pair<std::int32_t, std::int32_t>, const Call*> calls_;  // by queue and position
  std::map<std::int32_t, Direction> of_queue_;                          // of queues that copy
  std::map<std::int32_t, std::vector<Work>> works_;                     // by queue, in order
  std::int64_t last_ = 0;
};

}  // namespace

Links links_of(const RankTimes& rank) { return Reader(rank).read(); }

double tokens_to_hide(const Links& links, double tokens) {
  if (links.grow || links.exposed() <= 0 || links.passes <= 0) return 0;
  return tokens * (links.passes + links.exposed()) / links.passes;
}

}  // namespace prun
