#include "plan/proof/events.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace prun {
namespace {

// ------------------------------------------------------------------- events

// The saver's queue comes after those of the plan.
bool is_saver(const Plan& plan, std::int32_t queue) {
  return static_cast<std::size_t>(queue) == plan.queues.size();
}

bool computes_first(const Plan& plan, std::int32_t queue) {
  return plan.queues[queue].workers && plan.queues[queue].device == 0;
}

// Returns true if computation waits for communication, or communication for its input.
bool is_counted(const Plan& plan, std::int32_t queue, std::int32_t waits_for) {
  const bool communicates = plan.queues[waits_for].communicates();
  if (plan.queues[queue].communicates()) return !communicates && !computes_first(plan, waits_for);
  return communicates && computes_first(plan, queue);
}

}  // namespace

std::int32_t counted_wait(const Plan& plan, const Call& call, std::size_t wait) {
  if (wait >= call.waits.size()) return -1;
  const std::int32_t waits_for = call.waits[wait].queue;
  return is_counted(plan, call.queue, waits_for) ? waits_for : -1;
}

bool is_edge(const Plan& plan, const Call& call, std::size_t wait) {
  return counted_wait(plan, call, wait) != (wait > 0 ? counted_wait(plan, call, wait - 1) : -1);
}

namespace {

using Interval = std::pair<double, double>;

// Joins overlapping intervals.
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

// Returns how long both go on; intervals must be joined.
double seconds_of_both(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double seconds = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    seconds += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    if (a[i].second < b[j].second)
      ++i;
    else
      ++j;
  }
  return seconds;
}

}  // namespace

double seconds_beside(const Plan& plan, std::span<const Event> events, std::int64_t step,
                      std::vector<Interval> others) {
  std::vector<Interval> computing;
  for (const Event& event : events) {
    if (event.step != step || event.waits_for >= 0 || is_saver(plan, event.queue)) continue;
    if (computes_first(plan, event.queue) && !plan.queues[event.queue].communicates())
      computing.emplace_back(event.begin, event.end);
  }
  return seconds_of_both(joined(std::move(computing)), joined(std::move(others)));
}

double exposed_communication(std::span<const HeldUp> computing,
                             const Numbered<std::vector<HeldUp>>& communicating) {
  const auto intervals = [](std::span<const HeldUp> of, std::int32_t by) {
    std::vector<Interval> all;
    for (const HeldUp& one : of)
      if (by < 0 || one.by == by) all.emplace_back(one.begin, one.end);
    return joined(std::move(all));
  };
  double seconds = 0;
  for (const HeldUp& one : computing) seconds += one.end - one.begin;
  for (std::size_t queue = 0; queue < communicating.size(); ++queue)
    if (!communicating[queue].empty())
      seconds -= seconds_of_both(intervals(computing, static_cast<std::int32_t>(queue)),
                                 intervals(communicating[queue], -1));
  return seconds;
}

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step) {
  StepTimes times;
  times.busy.resize(plan.queues.size());
  times.waiting.resize(plan.queues.size());
  std::vector<HeldUp> computing;
  Numbered<std::vector<HeldUp>> communicating(plan.queues.size());
  double waits_of_computing = 0;
  for (const Event& event : events) {
    if (is_saver(plan, event.queue)) continue;
    const bool waits = event.waits_for >= 0 && !is_saver(plan, event.waits_for);
    const bool counts = waits && is_counted(plan, event.queue, event.waits_for);
    if (counts && plan.queues[event.queue].communicates())
      communicating[event.queue].push_back({event.waits_for, event.begin, event.end});
    if (event.step != step) continue;
    const auto queue = static_cast<std::size_t>(event.queue);
    const double seconds = event.end - event.begin;
    (event.waits_for < 0 ? times.busy : times.waiting)[queue] += seconds;
    if (!waits || !computes_first(plan, event.queue)) continue;
    waits_of_computing += seconds;
    if (counts) computing.push_back({event.waits_for, event.begin, event.end});
  }
  times.exposed_communication = exposed_communication(computing, communicating);
  times.exposed_transfers = waits_of_computing - times.exposed_communication;
  return times;
}

// ------------------------------------------------------------------- submission script

void submission_script(const Plan& plan, const Call& call, std::int64_t iteration,
                       const SubmittedCall& submitted, std::vector<SubmittedPiece>& script) {
  using Kind = SubmittedPiece::Kind;
  script.clear();
  const auto stamp = [&] {
    if (submitted.stamps) script.push_back({Kind::stamp});
  };
  const auto edge = [&](std::size_t wait) {
    if (submitted.edges && is_edge(plan, call, wait)) script.push_back({Kind::edge});
  };
  stamp();
  for (std::size_t i = 0; i < call.waits.size(); ++i) {
    edge(i);
    if (iteration >= call.waits[i].steps_ago) script.push_back({Kind::wait, i});
    stamp();
  }
  edge(call.waits.size());
  for (std::size_t i = 0; i < submitted.works; ++i) {
    script.push_back({Kind::work, i});
    stamp();
  }
  const std::size_t at_once = submitted.one_by_one ? 1 : submitted.exchanges;
  for (std::size_t begun = 0; begun < submitted.exchanges;) {
    script.push_back({Kind::exchanges, begun += at_once});
    stamp();
  }
  if (submitted.event) script.push_back({Kind::event});
  if (submitted.counter) script.push_back({Kind::counter});
}

}  // namespace prun
