#include "inspect/plan_figures.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "estimate/trace.hpp"
#include "plan/offsets.hpp"
#include "plan/pipeline/timing.hpp"
#include "plan/plan.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- purposes

constexpr auto state = static_cast<std::size_t>(Region::state);

PurposeBytes empty(const std::string& name, const Plan& plan) {
  return {name, true, std::vector<std::int64_t>(plan.layout.ranges.size())};
}

// Counts all instances, with each value at a multiple of the range's alignment.
void add_parts(const Plan& plan, const Bucket& bucket, Id value, PurposeBytes& parts) {
  const auto allocation = plan.allocations.find(value);
  if (allocation == plan.allocations.end() || allocation->second.region != Region::state) return;
  const Layout::Range& range = plan.layout.ranges[static_cast<std::size_t>(allocation->second.range)];
  const std::int64_t unit = range.place.space == Space::disk ? drive_alignment : alignment;
  for (const Instance& instance : plan.instances)
    if (instance.segment == bucket.segment && !instance.is_stub())
      parts.by_range[static_cast<std::size_t>(allocation->second.range)] +=
          align(allocation->second.bytes, unit);
}

}  // namespace

std::int64_t PurposeBytes::all() const {
  return std::accumulate(by_range.begin(), by_range.end(), std::int64_t{0});
}

std::vector<PurposeBytes> bytes_by_purpose(const Program& program, const Plan& plan) {
  PurposeBytes parameters = empty("parts of parameters", plan), gradients = empty("parts of gradients", plan);
  for (const Bucket& bucket : program.buckets()) {
    add_parts(plan, bucket, bucket.own_parameters, parameters);
    add_parts(plan, bucket, bucket.own_gradients, gradients);
  }
  std::vector<PurposeBytes> all;
  for (std::size_t region = 0; region < static_cast<std::size_t>(regions); ++region) {
    const auto of = static_cast<Region>(region);
    PurposeBytes& purpose = all.emplace_back(empty(name_of(of), plan));
    purpose.stays = lasts(of) || of == Region::slot;
    for (std::size_t r = 0; r < plan.layout.ranges.size(); ++r) {
      purpose.by_range[r] = plan.layout.ranges[r].memory.bytes[region];
      if (region == state) purpose.by_range[r] -= parameters.by_range[r] + gradients.by_range[r];
    }
    if (region != state) continue;
    for (PurposeBytes* const parts : {&parameters, &gradients})
      if (parts->all() > 0) all.push_back(*parts);
  }
  return all;
}

namespace {

// ------------------------------------------------------------------- memory use

using Alive = std::pair<std::int32_t, std::int32_t>;  // instance, microbatch

bool is_backward(FunctionKind kind) {
  return kind == FunctionKind::backward || kind == FunctionKind::backward_weight;
}

// Returns the bytes that an instance keeps of one microbatch.
std::int64_t kept_bytes(const Plan& plan, std::int32_t instance) {
  std::int64_t bytes = 0;
  for (const Layout::Range& range : plan.layout.ranges)
    for (const Region region : {Region::slot, Region::boundary}) {
      const auto& placed = range.instances[static_cast<std::size_t>(region)];
      if (const auto at = static_cast<std::size_t>(instance); at < placed.size()) bytes += placed[at].stride;
    }
  return bytes;
}

std::int64_t scratch_bytes(const PlannedFunction& function) {
  return std::accumulate(function.scratch_bytes.begin(), function.scratch_bytes.end(), std::int64_t{0});
}

bool comes_and_goes(Region region) {
  return region == Region::slot || region == Region::boundary || region == Region::scratch;
}

// Returns, by instance and microbatch, the last call that reads what was kept of it.
std::map<Alive, std::size_t> last_uses(const Plan& plan) {
  std::map<Alive, std::size_t> last;
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const Call& call = plan.calls[i];
    if (is_backward(plan.functions[static_cast<std::size_t>(call.function)].kind))
      last[{call.instance, call.microbatch}] = i;
  }
  return last;
}

std::vector<PeakTensor> tensors_of(const Program& program, const PlannedFunction& function) {
  std::map<Id, PeakTensor> found;
  std::int64_t workspace = 0;
  for (const PlannedStep& step : function.steps) {
    workspace = std::max(workspace, step.workspace.bytes);
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none)
        found[operand.value] = {program.value(operand.value).name, name_of(operand.address.region),
                                operand.address.bytes};
  }
  std::vector<PeakTensor> tensors;
  for (auto& [id, tensor] : found) tensors.push_back(std::move(tensor));
  if (workspace > 0) tensors.push_back({"workspace of kernels", name_of(Region::scratch), workspace});
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PeakTensor& a, const PeakTensor& b) { return a.bytes > b.bytes; });
  return tensors;
}

}  // namespace

MemoryUse memory_use(const Assembly& assembly, std::int64_t rank) {
  const Plan& plan = assembly.plan_of(rank);
  MemoryUse use;
  for (int region = 0; region < regions; ++region)
    if (!comes_and_goes(static_cast<Region>(region)))
      use.always += plan.layout.memory.bytes[static_cast<std::size_t>(region)];
  const std::map<Alive, std::size_t> last = last_uses(plan);
  std::map<Alive, std::int64_t> alive;
  std::int64_t saved = 0;
  std::size_t peak_call = 0;
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const Call& call = plan.calls[i];
    const PlannedFunction& function = plan.functions[static_cast<std::size_t>(call.function)];
    const Alive key{call.instance, call.microbatch};
    if (function.kind == FunctionKind::forward && alive.count(key) == 0 && last.count(key) != 0)
      saved += alive[key] = kept_bytes(plan, call.instance);
    if (!plan.queues[static_cast<std::size_t>(call.queue)].communicates()) {
      use.moments.push_back({call_text(assembly.program(), plan, call), saved, scratch_bytes(function)});
      if (use.at(use.moments.size() - 1) > use.at(use.peak)) use.peak = use.moments.size() - 1;
      if (use.peak + 1 == use.moments.size()) peak_call = i;
    }
    if (const auto ends = last.find(key); ends != last.end() && ends->second == i && alive.count(key) != 0) {
      saved -= alive[key];
      alive.erase(key);
    }
  }
  if (!plan.calls.empty())
    use.tensors = tensors_of(assembly.program(),
                             plan.functions[static_cast<std::size_t>(plan.calls[peak_call].function)]);
  return use;
}

// ------------------------------------------------------------------- traffic matrix

TrafficMatrix traffic_matrix(const Assembly& assembly, PluginHost& plugins, std::int64_t most_rows) {
  TrafficMatrix matrix;
  matrix.ranks = assembly.mesh().world();
  const std::int64_t shown = std::min(matrix.ranks, most_rows);
  matrix.bytes.assign(static_cast<std::size_t>(shown), std::vector<double>(static_cast<std::size_t>(shown)));
  for (std::int64_t rank = 0; rank < shown; ++rank) {
    const Plan& plan = assembly.plan_of(rank);
    each_comm({assembly.recipe(), assembly.device_info(), plugins, assembly.mesh(), plan, rank},
              [&](const QueueTraffic& traffic) {
                const QueueInfo& queue = plan.queues[traffic.queue];
                const std::string& axis = assembly.mesh().name(queue.axis);
                Link link{rank,
                          queue.name,
                          axis,
                          comm_of_axis(assembly.recipe(), plugins, axis),
                          queue.members(assembly.mesh(), rank),
                          static_cast<double>(traffic.needs.bytes_sent)};
                const double share =
                    link.bytes / std::max<double>(1, static_cast<double>(link.members.size()) - 1);
                for (const int member : link.members)
                  if (member != rank && member < shown)
                    matrix.bytes[static_cast<std::size_t>(rank)][static_cast<std::size_t>(member)] += share;
                matrix.links.push_back(std::move(link));
              });
  }
  return matrix;
}

namespace {

// ------------------------------------------------------------------- timeline

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
