#include "inspect/pipeline_report.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

constexpr int drawn_columns = 100, label_columns = 11;
constexpr std::int32_t drawn_ranks = 8;
constexpr std::int32_t drawn_microbatches = 16;

constexpr PassCosts unit_costs{1, 1, 1, 0};

// Returns the calls of the first microbatches, in their order. All calls that they wait for are among them.
PipelineOrder first_microbatches(const PipelineOrder& order, std::int32_t microbatches) {
  PipelineOrder first = order;
  first.shape.microbatches = microbatches;
  for (std::vector<ScheduleCall>& calls : first.calls)
    calls.erase(std::remove_if(calls.begin(), calls.end(),
                               [&](const ScheduleCall& call) { return call.microbatch >= microbatches; }),
                calls.end());
  return first;
}

// Is a timed order, or the part of it that is drawn.
struct Drawing {
  PipelineOrder order;
  PipelineTiming timing;
  std::int32_t first_rank = 0;
};

// Keeps the last ranks: there forwards turn into backwards. Time starts with the first of their calls.
void keep_last_ranks(Drawing& drawing) {
  const std::int32_t dropped = drawing.order.shape.ranks - drawn_ranks;
  if (dropped <= 0) return;
  drawing.first_rank = dropped;
  drawing.order.calls.erase(drawing.order.calls.begin(), drawing.order.calls.begin() + dropped);
  std::vector<std::vector<CallTime>>& times = drawing.timing.times;
  times.erase(times.begin(), times.begin() + dropped);
  double begin = drawing.timing.makespan, end = 0;
  for (const std::vector<CallTime>& of_rank : times) {
    begin = std::min(begin, of_rank.front().begin);
    end = std::max(end, of_rank.back().end);
  }
  for (std::vector<CallTime>& of_rank : times)
    for (CallTime& time : of_rank) time = {time.begin - begin, time.end - begin};
  drawing.timing.makespan = end - begin;
}

Drawing draw_first(const PipelineOrder& order, std::int32_t microbatches) {
  Drawing drawing{first_microbatches(order, microbatches), {}, 0};
  drawing.timing = time_schedule(drawing.order, unit_costs);
  keep_last_ranks(drawing);
  return drawing;
}

// Draws microbatches that leave a column for the shortest pass. Of those numbers it takes the one with the
// fewest gaps: some schedules take microbatches in groups, and part of a group looks idler than it is.
Drawing what_fits(const PipelineOrder& order) {
  Drawing best = draw_first(order, 1);
  double least = 1;
  for (std::int32_t microbatches = std::min(order.shape.microbatches, drawn_microbatches); microbatches > 1;
       --microbatches) {
    Drawing drawing = draw_first(order, microbatches);
    if (drawing.timing.makespan > drawn_columns) continue;
    if (microbatches == order.shape.microbatches) return drawing;
    if (const double bubble = bubble_of(first_microbatches(order, microbatches)); bubble < least) {
      least = bubble;
      best = std::move(drawing);
    }
  }
  return best;
}

std::string left_out_text(const ScheduleShape& shape, const Drawing& drawing) {
  std::string text;
  if (drawing.first_rank > 0)
    text += detail::concat("ranks ", drawing.first_rank, " to ", shape.ranks - 1, " of ", shape.ranks);
  if (const std::int32_t drawn = drawing.order.shape.microbatches; drawn < shape.microbatches)
    text += detail::concat(text.empty() ? "" : ", ", drawn, " of ", shape.microbatches, " microbatches");
  return text.empty() ? "" : "  drawn: " + text + "\n";
}

std::string timeline(const PipelineOrder& order) {
  const Drawing drawing = what_fits(order);
  std::string text = left_out_text(order.shape, drawing);
  const std::string rows =
      draw(drawing.order, drawing.timing, drawn_columns + label_columns, drawing.first_rank);
  for (const std::string_view row : split(rows, '\n'))
    if (!row.empty()) text += "  " + std::string(row) + "\n";
  return text;
}

std::string counted(std::int32_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string bubble_text(const PipelineOrder& order) {
  const std::string theory = order.theory ? detail::concat(" (theory ", order.theory->formula, " = ",
                                                           percent(order.theory->share), ")")
                                          : "";
  return "bubble      " + percent(bubble_of(order)) + " of the step" + theory + "\n";
}

std::string units(double count) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", count);
  return text;
}

// Says how much longer a row of steps takes where it ends: at saves, evaluations, comparisons and the stop.
std::string drain_text(const PipelineOrder& order) {
  if (!order.overlap) return "";
  const double step = time_schedule(order, unit_costs).makespan - order.overlap->drain;
  return detail::concat("drains      each takes ", units(order.overlap->drain),
                        " units longer, and a step between two others ", units(step),
                        ": ahead of saves, evaluations and comparisons, and of the end\n");
}

// Says what it costs that passes train with weights of earlier updates.
std::string versions_text(const Assembly& assembly) {
  const Program& program = assembly.program();
  if (program.delay() == 0) return "";
  std::int64_t bytes = 0;
  std::int32_t oldest = 0;
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    const std::int32_t delay = assembly.plan().instances[instance].delay;
    oldest = std::max(oldest, delay);
    for (const Id before : program.value(parameter).before)
      if (program.value(before).age <= delay) bytes += program.local_bytes(before);
  });
  const std::string size = size_text(bytes);
  if (program.delays().at_once)
    return detail::concat("versions    ", oldest + 1, " of the weights on rank ", assembly.rank(),
                          ", as many as stages from its own on: the older ones are ", size,
                          " of the optimizer state\n");
  return detail::concat("versions    two of the weights: the older one is ", size, " of the optimizer state",
                        assembly.plan().overlaps ? "; gradients are those of two steps\n" : "\n");
}

}  // namespace

std::string pipeline_text(const Assembly& assembly) {
  if (!assembly.pipeline()) return versions_text(assembly);
  const PipelineOrder& order = assembly.pipeline()->order;
  const std::string& schedule = assembly.program().requests().pipeline->schedule;
  return detail::concat("pipeline    ", schedule, ", ", counted(order.shape.ranks, "rank"), ", ",
                        counted(order.shape.chunks, "chunk"), " a rank, ", order.shape.microbatches,
                        order.shape.microbatches == 1 ? " microbatch" : " microbatches",
                        "; F 1, B 1, W 1 unit, a whole B 2\n") +
         timeline(order) + bubble_text(order) + drain_text(order) + versions_text(assembly);
}

void write_pipeline(JsonWriter& json, const Assembly& assembly) {
  json.name("pipeline");
  if (!assembly.pipeline()) {
    json.null();
    return;
  }
  const PipelineOrder& order = assembly.pipeline()->order;
  json.begin_object().member("schedule", assembly.program().requests().pipeline->schedule);
  json.member("chunks", order.shape.chunks).member("bubble", bubble_of(order));
  if (order.overlap) json.member("drain_units", order.overlap->drain);
  json.end_object();
}

}  // namespace prun
