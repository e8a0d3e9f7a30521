#include "simulate/events.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace prun {
namespace {

// Says whether this is the saver's queue, which comes behind those of the plan.
bool is_saver(const Plan& plan, std::int32_t queue) {
  return static_cast<std::size_t>(queue) == plan.queues.size();
}

}  // namespace

bool is_exposed(const Plan& plan, std::int32_t queue, std::int32_t waits_for) {
  return plan.queues[queue].workers && plan.queues[queue].device == 0 &&
         plan.queues[waits_for].communicates();
}

std::vector<bool> edges_of_exposure(const Plan& plan, const Call& call) {
  std::vector<bool> edges;
  bool exposed = false;
  for (const Wait& wait : call.waits) {
    const bool next = is_exposed(plan, call.queue, wait.queue);
    edges.push_back(std::exchange(exposed, next) != next);
  }
  edges.push_back(exposed);
  return edges;
}

namespace {

using Interval = std::pair<double, double>;

// Joins intervals, so that each begins behind the end of the one before.
std::vector<Interval> joined(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> joined;
  for (const Interval& each : intervals)
    if (joined.empty() || each.first > joined.back().second)
      joined.push_back(each);
    else
      joined.back().second = std::max(joined.back().second, each.second);
  return joined;
}

}  // namespace

double seconds_beside(const Plan& plan, std::span<const Event> events, std::int64_t step,
                      std::vector<Interval> others) {
  std::vector<Interval> computing;
  for (const Event& event : events) {
    if (event.step != step || event.waits_for >= 0 || is_saver(plan, event.queue)) continue;
    const QueueInfo& queue = plan.queues[event.queue];
    if (queue.workers && queue.device == 0 && !queue.communicates())
      computing.emplace_back(event.begin, event.end);
  }
  double seconds = 0;
  const std::vector<Interval> a = joined(std::move(computing)), b = joined(std::move(others));
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    seconds += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    if (a[i].second < b[j].second)
      ++i;
    else
      ++j;
  }
  return seconds;
}

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step) {
  StepTimes times;
  times.busy.resize(plan.queues.size());
  times.waiting.resize(plan.queues.size());
  for (const Event& event : events) {
    if (event.step != step || is_saver(plan, event.queue)) continue;
    const auto queue = static_cast<std::size_t>(event.queue);
    const double seconds = event.end - event.begin;
    if (event.waits_for < 0) {
      times.busy[queue] += seconds;
      continue;
    }
    times.waiting[queue] += seconds;
    if (is_saver(plan, event.waits_for)) continue;
    if (is_exposed(plan, event.queue, event.waits_for))
      times.exposed_communication += seconds;
    else if (plan.queues[queue].workers && plan.queues[queue].device == 0)
      times.exposed_transfers += seconds;
  }
  return times;
}

}  // namespace prun
