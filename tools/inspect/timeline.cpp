#include "inspect/timeline.hpp"

#include <algorithm>

#include "estimate/trace.hpp"
#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

using Kind = TimelineBar::Kind;

Kind kind_of(const QueueInfo& queue, FunctionKind function) {
  if (queue.communicates()) return Kind::exchange;
  switch (function) {
    case FunctionKind::forward: return Kind::forward;
    case FunctionKind::backward: return Kind::backward;
    case FunctionKind::backward_weight: return Kind::weight;
    default: return Kind::update;
  }
}

void settle(TimelineRow& row, double end) {
  std::sort(row.bars.begin(), row.bars.end(),
            [](const TimelineBar& a, const TimelineBar& b) { return a.begin < b.begin; });
  double busy = 0, until = 0;
  for (const TimelineBar& bar : row.bars) {
    busy += std::max(0.0, bar.end - std::max(until, bar.begin));
    until = std::max(until, bar.end);
  }
  row.idle = end > 0 ? std::max(0.0, 1 - busy / end) : 0;
}

// Is the part of a simulation that is drawn: from the end of the step before the last one to that one's end.
struct Window {
  double begin = 0, end = 0;
};

double end_of(const Simulation& simulation) {
  double end = 0;
  for (const RankTimes& rank : simulation.ranks)
    for (const Event& event : rank.events) end = std::max(end, event.end);
  return end;
}

// Returns a row for each queue of a rank that does something within the window, in milliseconds from its
// begin.
std::vector<TimelineRow> rows_of(const RankTimes& rank, Window window) {
  const Plan& plan = *rank.simulated.plan;
  std::vector<std::vector<const Call*>> calls(plan.queues.size());
  for (const Call& call : plan.calls) calls[static_cast<std::size_t>(call.queue)].push_back(&call);
  std::vector<TimelineRow> rows(plan.queues.size());
  for (const Event& event : rank.events) {
    const double begin = std::max(event.begin, window.begin), end = std::min(event.end, window.end);
    if (event.waits_for >= 0 || end <= begin) continue;
    const auto queue = static_cast<std::size_t>(event.queue);
    const Call& call = *calls[queue][static_cast<std::size_t>(event.position)];
    const FunctionKind function = plan.functions[static_cast<std::size_t>(call.function)].kind;
    rows[queue].bars.push_back({(begin - window.begin) * 1e3, (end - window.begin) * 1e3,
                                kind_of(plan.queues[queue], function),
                                call_name(*rank.simulated.program, plan, call)});
  }
  for (std::size_t q = 0; q < rows.size(); ++q)
    rows[q].label = detail::concat("rank ", rank.rank, " ", plan.queues[q].name);
  std::erase_if(rows, [](const TimelineRow& row) { return row.bars.empty(); });
  return rows;
}

bool computes(const TimelineRow& row) { return row.bars.front().kind != Kind::exchange; }

Timeline simulated(const Simulation& simulation, std::size_t most_rows, std::size_t most_bars) {
  Timeline timeline;
  timeline.unit = "ms";
  timeline.end = simulation.step_seconds * 1e3;
  timeline.said =
      "a step as simulated from the cost table, exchanges with the time they wait for the other side; "
      "ranks that do the same are drawn once";
  const double end = end_of(simulation);
  std::vector<TimelineRow> rows;
  for (const RankTimes& rank : simulation.ranks)
    for (TimelineRow& row : rows_of(rank, {end - simulation.step_seconds, end}))
      rows.push_back(std::move(row));
  std::stable_partition(rows.begin(), rows.end(), computes);
  std::size_t bars = 0;
  for (TimelineRow& row : rows) {
    bars += row.bars.size();
    if (timeline.rows.size() == most_rows || bars > most_bars) break;
    settle(row, timeline.end);
    timeline.rows.push_back(std::move(row));
  }
  if (const std::size_t left_out = rows.size() - timeline.rows.size(); left_out > 0)
    timeline.said += detail::concat("; ", left_out, " more queues are not drawn");
  return timeline;
}

Kind kind_of(Pass pass) {
  if (pass == Pass::forward) return Kind::forward;
  return pass == Pass::backward_weight ? Kind::weight : Kind::backward;
}

Timeline scheduled(const PipelineOrder& order, std::size_t most_rows, std::size_t most_bars) {
  const PipelineTiming timing = time_schedule(order, PassCosts{});
  Timeline timeline;
  timeline.end = timing.makespan;
  timeline.unit = "passes";
  timeline.said = "the schedule, each pass of a stage taking one unit and a whole backward two";
  std::size_t bars = 0;
  for (std::size_t rank = 0; rank < order.calls.size(); ++rank) {
    bars += order.calls[rank].size();
    if (rank >= most_rows || bars > most_bars) {
      timeline.said += detail::concat("; the first ", rank, " of ", order.calls.size(), " ranks are drawn");
      break;
    }
    TimelineRow row{detail::concat("stage rank ", rank), {}, 0};
    for (std::size_t i = 0; i < order.calls[rank].size(); ++i)
      row.bars.push_back({timing.times[rank][i].begin, timing.times[rank][i].end,
                          kind_of(order.calls[rank][i].pass), describe(order.calls[rank][i])});
    settle(row, timeline.end);
    timeline.rows.push_back(std::move(row));
  }
  return timeline;
}

}  // namespace

Timeline timeline_of(const Assembly& assembly, const Forecast& forecast, std::size_t most_rows,
                     std::size_t most_bars) {
  if (forecast.prediction) return simulated(forecast.prediction->simulation, most_rows, most_bars);
  if (assembly.pipeline()) return scheduled(assembly.pipeline()->order, most_rows, most_bars);
  return {};
}

}  // namespace prun
