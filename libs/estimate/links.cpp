#include "estimate/links.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "estimate/moved_bytes.hpp"

namespace prun {
namespace {

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
