#include "inspect/report_sections.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/number_text.hpp"
#include "plan/pipeline/timing.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- pipeline report

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

namespace {

// ------------------------------------------------------------------- offload report

bool has_more_devices(const Assembly& assembly) { return assembly.device_infos().size() > 1; }

// Predicts, for the rank that has most of it, for how long queues of further devices compute in a step, and
// for how long those and copies hold up the first one's.
struct Beside {
  double busy = 0, exposed = 0;
};
std::optional<Beside> seconds_beside(const Forecast& forecast) {
  if (!forecast.prediction) return {};
  Beside most{0, forecast.exposed.transfers};
  for (const RankTimes& rank : forecast.prediction->simulation.ranks) {
    const std::vector<QueueInfo>& queues = rank.simulated.plan->queues;
    double busy = 0;
    for (std::size_t q = 0; q < queues.size(); ++q)
      if (queues[q].device > 0 && queues[q].workers) busy += rank.times.busy[q];
    most.busy = std::max(most.busy, busy);
  }
  return most;
}

// Returns the predicted links of the rank whose link holds it up longest.
std::optional<Links> most_exposed_links(const Forecast& forecast) {
  if (!forecast.prediction) return {};
  Links most;
  for (const RankTimes& rank : forecast.prediction->simulation.ranks)
    if (const Links links = links_of(rank); links.exposed() >= most.exposed()) most = links;
  return most;
}

std::string links_text(const Assembly& assembly, const Forecast& forecast) {
  const std::optional<Links> links = most_exposed_links(forecast);
  if (!links) return "";
  std::string text;
  for (const auto& [name, times] :
       {std::pair{"to the device", links->to_device}, std::pair{"to the host", links->to_host}})
    text += format("  link %-13s busy for ", name) + time_text(times.busy) + " a step, " +
            time_text(times.busy - times.exposed) + " of it hidden, " + time_text(times.exposed) +
            " exposed\n";
  const double tokens = tokens_to_hide(*links, static_cast<double>(assembly.batch().tokens()));
  if (tokens > 0)
    text += "  " + rate_text(std::ceil(tokens)) + " tokens a step rather than " +
            rate_text(static_cast<double>(assembly.batch().tokens())) +
            " would hide the rest, with a larger batch.micro\n";
  return text;
}

// States the times of the rank that is held up longest by users of its links and of its host's memory.
struct SharedTimes {
  double bytes = 0, bandwidth = 0, slowed = 0;
};
std::optional<SharedTimes> shared_times(const Forecast& forecast) {
  if (!forecast.prediction || !forecast.prediction->host_bandwidth) return {};
  SharedTimes most;
  for (const RankTimes& rank : forecast.prediction->simulation.ranks) {
    most.bytes = std::max(most.bytes, rank.host_bytes);
    most.slowed = std::max(most.slowed, rank.slowed);
  }
  most.bandwidth = *forecast.prediction->host_bandwidth;
  return most;
}

std::string shared_text(const Forecast& forecast) {
  const std::optional<SharedTimes> times = shared_times(forecast);
  if (!times) return "";
  return "  memory of the host " + size_text(times->bytes) + " a step and rank, at " +
         format("%.1f GB/s (", times->bandwidth / 1e9) + time_text(times->bytes / times->bandwidth) +
         "); sharing it and links makes updates and copies " + time_text(times->slowed) + " longer\n";
}

// States the updates that may begin before the norm of all gradients is known, of a step's, and what they
// hold.
struct SpeculativeUpdates {
  std::int64_t speculative = 0, all = 0, bytes = 0;
};
std::optional<SpeculativeUpdates> speculative_updates(const Plan& plan) {
  SpeculativeUpdates updates{plan.speculated(), 0, plan.layout.memory.bytes[Region::arrived]};
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(plan.instances.size()); ++i)
    updates.all += !plan.instances[i].is_stub() && plan.find(FunctionKind::update, i) >= 0;
  if (updates.speculative == 0) return {};
  return updates;
}

std::string speculation_text(const Plan& plan, const Forecast& forecast) {
  const std::optional<SpeculativeUpdates> updates = speculative_updates(plan);
  if (!updates) return "";
  std::string text = detail::concat("  ", updates->speculative, " of ", updates->all,
                                    " updates may begin before the norm is known, and hold ") +
                     size_text(updates->bytes);
  if (!forecast.waiting) return text + "\n";
  const double gain = *forecast.waiting - forecast.prediction->simulation.step_seconds;
  return text + "; a step within the limit takes " + time_text(std::abs(gain)) +
         (gain < 0 ? " more" : " less") + " than one that waits for it, as predicted\n";
}

// Says why no update on the host begins before the norm is known, though one limits it: they fetch what is
// not all in the host's memory.
std::string waiting_text(const Assembly& assembly) {
  const Plan& plan = assembly.plan();
  if (assembly.recipe().number("optimizer.clip") == 0 || speculative_updates(plan)) return "";
  bool drives = false, device = false, beside = false;
  for (const Call& call : plan.calls) {
    if (plan.functions[call.function].kind != FunctionKind::update || call.instance == 0) continue;
    for (const PlannedStep& step : plan.steps(call)) {
      beside |= step.kernel && step.device != 0 && !assembly.program().op(step.op).def->copies;
      drives |= reads_disk(assembly.program(), plan, step);
      device |= direction_of(assembly.program(), plan, step) == Direction::to_host;
    }
  }
  if (!beside || !(drives || device)) return "";
  return detail::concat("  updates wait for the norm of all gradients, since they fetch from ",
                        drives ? "drives" : "", drives && device ? " and " : "",
                        device ? "device memory" : "",
                        "; those of what is all in the host's memory need not\n");
}

void write_speculation(JsonWriter& json, const Plan& plan, const Forecast& forecast) {
  const std::optional<SpeculativeUpdates> updates = speculative_updates(plan);
  if (!updates) return;
  json.name("speculation").begin_object();
  json.member("updates", updates->speculative).member("of", updates->all).member("bytes", updates->bytes);
  if (forecast.waiting) json.member("waiting_seconds", *forecast.waiting);
  json.end_object();
}

void write_links(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  const std::optional<Links> links = most_exposed_links(forecast);
  if (!links) return;
  json.member("to_device_seconds", links->to_device.busy).member("to_host_seconds", links->to_host.busy);
  json.member("to_device_exposed_seconds", links->to_device.exposed);
  json.member("to_host_exposed_seconds", links->to_host.exposed);
  json.member("tokens_to_hide", tokens_to_hide(*links, static_cast<double>(assembly.batch().tokens())));
}

}  // namespace

std::string offload_text(const Assembly& assembly, const Forecast& forecast) {
  if (!has_more_devices(assembly)) return "";
  const MovedBytes moved = moved_bytes(assembly.program(), assembly.plan());
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  std::string text = "offload     " + size(moved.to_host) + " a step from device memory to the host's, " +
                     size(moved.to_device) + " back\n";
  if (moved.from_disk + moved.to_disk > 0)
    text += "  " + size(moved.from_disk) + " a step read from disk, " + size(moved.to_disk) + " written\n";
  if (forecast.exposed.drives)
    text += "  drives busy for " + time_text(seconds_of_drives(assembly, forecast.prediction->simulation)) +
            " a step, both ways together; " + time_text(*forecast.exposed.drives) +
            " exposed, as predicted\n";
  if (const std::optional<Beside> seconds = seconds_beside(forecast))
    text += "  updates there " + time_text(seconds->busy) +
            " a step, as predicted; they and copies hold the device up for " + time_text(seconds->exposed) +
            "\n";
  return text + speculation_text(assembly.plan(), forecast) + waiting_text(assembly) +
         links_text(assembly, forecast) + shared_text(forecast);
}

void write_offload(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  if (!has_more_devices(assembly)) return;
  const MovedBytes moved = moved_bytes(assembly.program(), assembly.plan());
  json.name("offload").begin_object();
  json.member("to_host_bytes", moved.to_host).member("to_device_bytes", moved.to_device);
  json.member("from_disk_bytes", moved.from_disk).member("to_disk_bytes", moved.to_disk);
  if (forecast.exposed.drives)
    json.member("drives_seconds", seconds_of_drives(assembly, forecast.prediction->simulation))
        .member("exposed_drives_seconds", *forecast.exposed.drives);
  if (const std::optional<Beside> seconds = seconds_beside(forecast))
    json.member("update_seconds", seconds->busy).member("exposed_seconds", seconds->exposed);
  write_speculation(json, assembly.plan(), forecast);
  write_links(json, assembly, forecast);
  if (const std::optional<SharedTimes> times = shared_times(forecast))
    json.member("host_bytes", times->bytes)
        .member("host_bytes_per_second", times->bandwidth)
        .member("slowed_seconds", times->slowed);
  json.end_object();
}

namespace {

// ------------------------------------------------------------------- assumed

// Describes the memory of one device.
struct AssumedMemory {
  std::size_t device = 0;
  std::optional<std::int64_t> bytes;  // those of a rank; nothing: any amount
  std::string key;                    // that of the recipe that sets it, or would; empty: none does
};

std::vector<AssumedMemory> assumed_memory(const Assembly& assembly) {
  std::vector<AssumedMemory> all;
  for (std::size_t device = 0; device < assembly.device_infos().size(); ++device) {
    const std::string key = assembly.key_of_planned_memory(device);
    if (assembly.is_memory_stated(device))
      all.push_back({device, assembly.device_infos()[device].memory_bytes, key});
    else if (assembly.device_info().absent)
      all.push_back({device, {}, key});
  }
  return all;
}

std::string text_of(const Assembly& assembly, const AssumedMemory& memory) {
  const DeviceInfo& device = assembly.device_infos()[memory.device];
  const std::string of = detail::concat(device.tier ? "room on device " : "memory of device ", memory.device,
                                        device.tier ? " for a rank" : "");
  if (memory.bytes) return detail::concat(size_text(*memory.bytes), " of ", of, ", as ", memory.key, " says");
  return "any amount of " + of + (memory.key.empty() ? "" : ": " + memory.key + " says how much there is");
}

std::string ranks_text(const Assembly& assembly) {
  const std::int64_t ranks = ranks_of_host(assembly);
  const std::string key = assembly.key_of_planned_units();
  const std::string who = key.empty() ? ""
                          : ranks > 1 || !assembly.device_info().absent
                              ? ", as " + key + " says"
                              : ": " + key + " says how many share one";
  return (ranks == 1 ? std::string("a host of its own for each rank")
                     : detail::concat(ranks, " ranks on a host")) +
         who;
}

// Says how many threads a device beside the first computes with: where the recipe does not say so, it has the
// cores of this machine.
std::string threads_text(const Assembly& assembly) {
  for (std::size_t device = 1; device < assembly.device_infos().size(); ++device) {
    const DeviceInfo& info = assembly.device_infos()[device];
    if (!info.host_memory || info.tier) continue;
    const std::string key = assembly.key_of_planned_threads(device);
    const bool stated = !key.empty() && assembly.recipe().find(key) && assembly.recipe().integer(key) > 0;
    return detail::concat(
        "device ", device, " with ", info.threads, info.threads == 1 ? " thread" : " threads",
        stated ? ", as " + key + " says"
               : ", as on this machine" + (key.empty() ? "" : ": " + key + " says how many there are"));
  }
  return "";
}

std::vector<std::string> lines_of(const Assembly& assembly) {
  std::vector<std::string> lines;
  for (const AssumedMemory& memory : assumed_memory(assembly)) lines.push_back(text_of(assembly, memory));
  const std::int64_t world = assembly.mesh().world();
  const bool several = ranks_of_host(assembly) < world;
  if (world > 1 && (several || assembly.device_info().absent)) lines.push_back(ranks_text(assembly));
  if (!assembly.device_info().absent) return lines;
  lines.push_back(threads_text(assembly));
  std::erase(lines, "");
  return lines;
}

}  // namespace

std::string assumed_text(const Assembly& assembly) {
  std::string text;
  for (const std::string& line : lines_of(assembly))
    text += (text.empty() ? "assumed     " : "            ") + line + "\n";
  return text;
}

void write_assumed(JsonWriter& json, const Assembly& assembly) {
  const std::vector<std::string> lines = lines_of(assembly);
  json.name("assumed");
  if (lines.empty()) {
    json.null();
    return;
  }
  json.begin_object().member("another_machine", assembly.device_info().absent);
  json.member("ranks_of_host", ranks_of_host(assembly)).name("memory").begin_array();
  for (const AssumedMemory& memory : assumed_memory(assembly)) {
    json.begin_object().member("device", memory.device).member("key", memory.key).name("bytes");
    memory.bytes ? json.value(*memory.bytes) : json.null();
    json.end_object();
  }
  json.end_array().name("said").begin_array();
  for (const std::string& line : lines) json.value(line);
  json.end_array().end_object();
}

std::string crowded_host_note(const Assembly& assembly) {
  const std::optional<HostMemory> host = crowded_host(assembly);
  if (!host) return "";
  return detail::concat("the ", host->ranks, " ranks of a host together need ", size_text(host->needed),
                        ", and it has ", size_text(host->there), ": a run there is refused");
}

std::string crowded_host_text(const Assembly& assembly) {
  const std::string note = crowded_host_note(assembly);
  return note.empty() ? "" : "no room     " + note + "\n";
}

void write_crowded_host(JsonWriter& json, const Assembly& assembly) {
  const std::optional<HostMemory> host = crowded_host(assembly);
  if (!host) return;
  json.name("crowded_host").begin_object().member("ranks", host->ranks);
  json.member("needed_bytes", host->needed).member("there_bytes", host->there).end_object();
}

}  // namespace prun
