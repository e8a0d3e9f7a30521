#include "sim/events.hpp"

namespace prun {

StepTimes summarize(const Plan& plan, std::span<const Event> events, std::int64_t step) {
  StepTimes times;
  times.busy.resize(plan.queues.size());
  times.waiting.resize(plan.queues.size());
  for (const Event& event : events) {
    if (event.step != step) continue;
    const auto queue = static_cast<std::size_t>(event.queue);
    const double seconds = event.end - event.begin;
    if (event.waits_for < 0) {
      times.busy[queue] += seconds;
      continue;
    }
    times.waiting[queue] += seconds;
    if (plan.queues[queue].workers && plan.queues[static_cast<std::size_t>(event.waits_for)].communicates())
      times.exposed_communication += seconds;
  }
  return times;
}

}  // namespace prun
