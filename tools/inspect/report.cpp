// Reports the plan to people.
#include "inspect/report.hpp"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/narrow.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "estimate/number_text.hpp"
#include "inspect/fp8.hpp"
#include "inspect/plan_figures.hpp"
#include "inspect/report_sections.hpp"
#include "program/flops.hpp"
#include "program/recompute.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- dealt report
// Reports what a plan says about ops that one rank runs for others: updates of whole tensors whose state is
// kept in parts.

// Counts one rank's share.
struct Share {
  std::int64_t tensors = 0;
  double flops = 0;
};

// Returns "dp" or "dp+cp": the axes over which it is sharded.
std::string axes_text(const Program& program, Id part) {
  std::string text;
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.value(part).on(axis).is_sharded())
      text += (text.empty() ? "" : "+") + program.mesh().name(axis);
  return text;
}

std::map<std::string, std::vector<Share>> dealt_by_axis(const Program& program) {
  std::map<std::string, std::vector<Share>> all;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::update)) {
      const Op& op = program.op(id);
      if (!op.def->dealt || op.operands[1] == none) continue;
      const auto ranks = static_cast<std::int64_t>(program.attr(id, "ranks")),
                 first = static_cast<std::int64_t>(program.attr(id, "first"));
      std::vector<Share>& shares = all[axes_text(program, op.operands[1])];
      shares.resize(static_cast<std::size_t>(ranks));
      for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer) {
        Share& share = shares[static_cast<std::size_t>((first + layer) % ranks)];
        ++share.tensors;
        share.flops += op.cost(program.local_shape(op)).flops * static_cast<double>(ranks);
      }
    }
  return all;
}

// Returns an empty text where there are no such ops.
std::string dealt_text(const Program& program) {
  std::string text;
  for (const auto& [axis, shares] : dealt_by_axis(program)) {
    text += "dealt       updates of whole tensors, by coordinate of " + axis + ":";
    for (std::size_t rank = 0; rank < shares.size() && rank < 8; ++rank)
      text += (rank ? ", " : " ") + format("%lld of %.3g GFLOP", static_cast<long long>(shares[rank].tensors),
                                           shares[rank].flops / 1e9);
    text += shares.size() > 8 ? ", ..\n" : "\n";
  }
  return text;
}

// Writes the member "dealt": by name of the axis, what each of its ranks computes in a step.
void write_dealt(JsonWriter& json, const Program& program) {
  json.name("dealt").begin_object();
  for (const auto& [axis, shares] : dealt_by_axis(program)) {
    json.name(axis).begin_array();
    for (const Share& share : shares)
      json.begin_object().member("tensors", share.tensors).member("flops", share.flops).end_object();
    json.end_array();
  }
  json.end_object();
}

// ------------------------------------------------------------------- plan facts
// Takes out of a plan and its forecast what is reported to people and to programs alike.

inline double step_flops(const Assembly& assembly) {
  return model_flops(assembly.unlowered()) * static_cast<double>(assembly.batch().accumulate);
}

inline double again_flops(const Assembly& assembly) {
  return recomputed_flops(assembly.unlowered()) * static_cast<double>(assembly.batch().accumulate);
}

// Calls body(queue, axis, bytes) for each queue on which a rank sends, with what it sends a step.
template <class Body>
void each_traffic(const Assembly& assembly, const Forecast& forecast, Body&& body) {
  const std::vector<QueueInfo>& queues = assembly.plan().queues;
  for (std::size_t q = 0; q < forecast.sent.size(); ++q)
    if (queues[q].communicates())
      body(queues[q], assembly.mesh().name(queues[q].axis), static_cast<double>(forecast.sent[q]));
}

// Returns what each rank of a pipeline needs, since its stages differ.
inline std::vector<std::int64_t> memory_of_stages(const Assembly& assembly) {
  std::vector<std::int64_t> all;
  for (int rank : assembly.mesh().group(assembly.rank(), assembly.pipeline()->axis))
    all.push_back(assembly.plan_of(rank).layout.bytes_in_memory());
  return all;
}

inline double tokens_per_second(const Assembly& assembly, const Simulation& simulation) {
  return static_cast<double>(assembly.batch().tokens()) / simulation.step_seconds;
}

// ------------------------------------------------------------------- report

// Says whether there is anything to report about it.
bool recomputes(const Assembly& assembly) {
  return chooses_recompute(assembly.unlowered()) || recomputed_text(assembly.unlowered()) != "nothing";
}

// Returns a text such as "gelu, layernorm in block, 1.20 G FLOPs a step".
std::string recompute_text(const Assembly& assembly) {
  const double flops = again_flops(assembly);
  return recomputed_text(assembly.unlowered()) +
         (flops > 0 ? ", " + count_text(flops) + " FLOPs a step" : "");
}

// Returns "0 2 4 6", shortened where there are many.
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8, shown = 3;
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool left_out = ranks.size() > most && i >= shown && i + 1 < ranks.size();
    if (!left_out) text += (text.empty() ? "" : " ") + std::to_string(ranks[i]);
    if (left_out && i == shown) text += " ..";
  }
  return text;
}

// Says which ranks form a group along an axis.
std::string axis_text(const Mesh& mesh, AxisId axis) {
  constexpr std::int64_t most = 4;
  const std::int64_t groups = mesh.world() / mesh.extent(axis);
  std::string text =
      detail::concat(groups, groups == 1 ? " group of " : " groups of ", mesh.extent(axis), ": ");
  std::int64_t shown = 0;
  for (std::int64_t rank = 0; rank < mesh.world() && shown < most; ++rank)
    if (mesh.coordinate(rank, axis) == 0) text += (shown++ ? " | " : "") + ranks_text(mesh.group(rank, axis));
  return groups > most ? text + " | .." : text;
}

std::string grid_text(const Mesh& mesh) {
  std::string text = "ranks       " + std::to_string(mesh.world());
  for (AxisId axis = 0; axis < mesh.size(); ++axis)
    text += detail::concat(axis ? " x " : " = ", mesh.name(axis), " ", mesh.extent(axis));
  text += "\n";
  for (AxisId axis = 0; axis < mesh.size(); ++axis)
    if (mesh.extent(axis) > 1)
      text += format("  %-20s ", mesh.name(axis).c_str()) + axis_text(mesh, axis) + "\n";
  return text;
}

std::string stages_text(const Assembly& assembly) {
  if (!assembly.pipeline()) return "";
  const std::string& axis = assembly.mesh().name(assembly.pipeline()->axis);
  std::string text = detail::concat("stages      memory by coordinate of ", axis, ":");
  for (const std::int64_t bytes : memory_of_stages(assembly)) text += " " + size_text(bytes);
  return text + "\n";
}

std::string traffic_text(const Assembly& assembly, const Forecast& forecast) {
  std::string text;
  each_traffic(assembly, forecast, [&](const QueueInfo& queue, const std::string& axis, double bytes) {
    if (text.empty()) text = "traffic     what each rank sends a step\n";
    text += format("  %-20s %12s  axis ", queue.name.c_str(), size_text(bytes).c_str()) + axis + "\n";
  });
  return text;
}

// Returns a text such as "pinned host memory of device 1".
std::string place_text(MemoryPlace place) {
  const std::string space = name_of(place.space);
  return place.device == 0 ? space : detail::concat(space, " of device ", place.device);
}

// Says where the arena is.
std::string ranges_text(const Plan& plan) {
  std::string text;
  for (const Layout::Range& range : plan.layout.ranges)
    if (range.bytes() > 0)
      text += format("  %-32s %12s\n", ("in " + place_text(range.place)).c_str(),
                     size_text(range.bytes()).c_str());
  return text;
}

// Returns "40 % in device memory, 60 % in pinned host memory" for tensors that have their allocation in
// several places.
std::string shares_text(const Layout& layout, const PurposeBytes& purpose) {
  if (!purpose.stays) return "";
  std::vector<std::string> shares;
  for (std::size_t r = 0; r < layout.ranges.size(); ++r)
    if (const std::int64_t bytes = purpose.by_range[r]; bytes > 0)
      shares.push_back(
          format("%.0f %% in ", 100 * static_cast<double>(bytes) / static_cast<double>(purpose.all())) +
          place_text(layout.ranges[r].place));
  return shares.size() < 2 ? "" : "  " + join(shares, ", ");
}

// Says what the arena consists of.
std::string purposes_text(const Program& program, const Plan& plan) {
  std::string text;
  for (const PurposeBytes& purpose : bytes_by_purpose(program, plan))
    if (const std::int64_t bytes = purpose.all(); bytes != 0)
      text += format("  %-20s %12s", purpose.name.c_str(), size_text(bytes).c_str()) +
              shares_text(plan.layout, purpose) + "\n";
  return text;
}

// Says which memory a save passes through, and for how long it holds up training.
std::string saves_text(const Assembly& assembly, const Forecast& forecast) {
  const ProcessNeed& need = assembly.process_need();
  if (need.saved_bytes == 0) return "";
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  std::string text = "saves       " + size(need.saved_bytes) + " of a rank, through " +
                     size(need.save_bytes) + " of its process\n";
  if (!forecast.save) return text;
  const SaveForecast& save = *forecast.save;
  text += "            " + time_text(save.seconds) + " until one is on the disk, which takes " +
          size_text(*assembly.recipe().bytes("run.save_rate")) + "/s (run.save_rate); ";
  if (save.delay)
    return text + "it holds training up for " + time_text(*save.delay) +
           (save.of_drives ? ", as if it went to the drives that state lies on\n" : "\n");
  return text + "it holds training up for " + time_text(save.still) + " less what passes are under way\n";
}

// Says what a step of each size of the batch is and takes, where the batch grows.
std::string ramp_text(const Assembly& assembly, const Forecast& forecast) {
  std::string text;
  for (std::size_t i = 0; i < forecast.ramp.size(); ++i) {
    const auto& [stretch, seconds] = forecast.ramp[i];
    const BatchArithmetic batch = assembly.batch().with_global(stretch.global);
    const bool last = i + 1 == forecast.ramp.size();
    text += i == 0 ? "ramp        " : "            ";
    const std::int64_t end = last ? 0 : forecast.ramp[i + 1].stretch.first_step - 1;
    text += last                        ? detail::concat("from step ", stretch.first_step, " on: ")
            : end == stretch.first_step ? detail::concat("step ", end, ": ")
                                        : detail::concat("steps ", stretch.first_step, " to ", end, ": ");
    text += batch.text();
    if (seconds)
      text += ", " + time_text(*seconds) + ", " + rate_text(static_cast<double>(batch.tokens()) / *seconds) +
              " tokens/s";
    text += "\n";
  }
  return text;
}

// Says how steps between two that run ops of `periodic` differ from those, which all else here is of.
std::string period_text(const Assembly& assembly, const Forecast& forecast) {
  if (!forecast.period) return "";
  const PeriodForecast& period = *forecast.period;
  const std::uint64_t full = std::accumulate(forecast.sent.begin(), forecast.sent.end(), std::uint64_t{0});
  std::string text = detail::concat("periodic    ", period.period == 1 ? "every step" : "one step in ",
                                    period.period == 1 ? "" : std::to_string(period.period), ", by [",
                                    assembly.program().requests().periodic->asked_by, "]");
  if (period.period == 1) return text + "\n";
  text += "; it sends " + size_text(narrow<std::int64_t>(full)) + ", the others " +
          size_text(narrow<std::int64_t>(period.sent));
  if (period.between)
    text += " in " + time_text(*period.between) + "; " + time_text(*period.mean) + " on average, " +
            rate_text(static_cast<double>(assembly.batch().tokens()) / *period.mean) + " tokens/s";
  return text + "\n";
}

std::string forecast_text(const Assembly& assembly, const Forecast& forecast) {
  if (!forecast.prediction) return "prediction  none: " + forecast.missing + "\n";
  const Simulation& simulation = forecast.prediction->simulation;
  const double exposed = forecast.exposed.communication;
  std::string text = "prediction  " + time_text(simulation.step_seconds) + " a step, " +
                     rate_text(tokens_per_second(assembly, simulation)) +
                     " tokens/s, exposed communication " + time_text(exposed) +
                     format(" (%.1f %%)\n", 100 * exposed / simulation.step_seconds);
  if (const double slowed = simulation.slowed_by_exchanges(); slowed > 0)
    text += "  " + time_text(slowed) + " of the step because kernels are slower while ranks communicate\n";
  if (const auto& range = forecast.prediction->range)
    text += "  between " + time_text(simulation.step_seconds * range->first, 2) + " and " +
            time_text(simulation.step_seconds * range->second, 2) + "\n";
  for (const std::string& note : forecast.prediction->notes) text += "  " + note + "\n";
  return text;
}

// Says what attention adds to the products of weights.
std::string attention_text(const Program& program) {
  const auto both_directions = [&](Id op) {
    return program.op(op).has_attr("causal") && program.attr(op, "causal") == 0;
  };
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    const std::vector<Id>& forward = program.segment(segment).ops(FunctionKind::forward);
    if (std::any_of(forward.begin(), forward.end(), both_directions))
      return "12 layers heads head_dim seq, in both directions";
  }
  return "6 layers heads head_dim seq, causal";
}

}  // namespace

std::string plan_text(const Assembly& assembly, const Forecast& forecast) {
  const Plan& plan = assembly.plan();
  std::string text = "batch       " + assembly.batch().text() + "\n";
  text += ramp_text(assembly, forecast);
  text += grid_text(assembly.mesh());
  text += "device      " + std::string(assembly.device_info().name.view()) + "\n";
  for (std::size_t number = 1; number < assembly.device_infos().size(); ++number)
    text += detail::concat("device ", number, "    ", assembly.device_infos()[number].name.view(), "\n");
  text += assumed_text(assembly);
  text += "parameters  " + count_text(assembly.parameters()) + "\n";
  text += format("plan        %zu functions, %zu calls a step on %zu queues\n", plan.functions.size(),
                 plan.calls.size(), plan.queues.size());
  const double flops = step_flops(assembly);
  text += "model FLOPs " + count_text(flops) + " a step, " +
          count_text(flops / static_cast<double>(assembly.batch().tokens())) + " a token (6 N + " +
          attention_text(assembly.program()) + ")\n";
  text += fp8_text(assembly.program());
  if (recomputes(assembly)) text += "recompute   " + recompute_text(assembly) + "\n";
  for (const std::string& said : assembly.program().requests().said_to_fit)
    text += "to fit      " + said + "\n";
  text += "memory      " + size_text(plan.layout.bytes_in_memory()) +
          (assembly.pipeline() ? " of the first stage\n" : "\n") + ranges_text(plan) +
          purposes_text(assembly.program(), plan);
  text += "process     " + size_text(assembly.process_bytes()) + ", not in the arena\n";
  if (assembly.process_device_bytes() > 0)
    text += "            " + size_text(assembly.process_device_bytes()) +
            " of the device's memory for context, libraries and communicators\n";
  text += crowded_host_text(assembly);
  text += saves_text(assembly, forecast);
  text += dealt_text(assembly.program());
  text += stages_text(assembly) + traffic_text(assembly, forecast) + offload_text(assembly, forecast) +
          pipeline_text(assembly);
  return text + forecast_text(assembly, forecast) + period_text(assembly, forecast);
}

namespace {

// ------------------------------------------------------------------- report json
// Reports the plan to programs.

void write_purposes(JsonWriter& json, const std::vector<PurposeBytes>& purposes) {
  json.name("memory").begin_object();
  for (const PurposeBytes& purpose : purposes) json.member(purpose.name, purpose.all());
  json.end_object();
}

void write_purposes_in(JsonWriter& json, const std::vector<PurposeBytes>& purposes, std::size_t range) {
  json.name("memory").begin_object();
  for (const PurposeBytes& purpose : purposes) json.member(purpose.name, purpose.by_range[range]);
  json.end_object();
}

void write_ranges(JsonWriter& json, const Plan& plan, const std::vector<PurposeBytes>& purposes) {
  json.name("ranges").begin_array();
  for (std::size_t r = 0; r < plan.layout.ranges.size(); ++r) {
    const Layout::Range& range = plan.layout.ranges[r];
    json.begin_object().member("device", range.place.device).member("space", name_of(range.place.space));
    json.member("begin", range.begin).member("bytes", range.bytes());
    write_purposes_in(json, purposes, r);
    json.end_object();
  }
  json.end_array();
}

void write_ramp(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  if (forecast.ramp.empty()) return;
  json.name("ramp").begin_array();
  for (const auto& [stretch, seconds] : forecast.ramp) {
    const BatchArithmetic batch = assembly.batch().with_global(stretch.global);
    json.begin_object().member("first_step", stretch.first_step).member("global", batch.global);
    json.member("accumulate", batch.accumulate).member("tokens", batch.tokens());
    if (seconds) json.member("step_seconds", *seconds);
    json.end_object();
  }
  json.end_array();
}

void write_period(JsonWriter& json, const Forecast& forecast) {
  if (!forecast.period) return;
  json.name("periodic").begin_object().member("every", forecast.period->period);
  json.member("sent_bytes_between", forecast.period->sent);
  if (forecast.period->between)
    json.member("step_seconds_between", *forecast.period->between)
        .member("mean_step_seconds", *forecast.period->mean);
  json.end_object();
}

void write_grid(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.name("mesh").begin_object();
  for (const Axis& axis : assembly.mesh().axes()) json.member(axis.name, axis.extent);
  json.end_object().name("sent_bytes").begin_object();
  each_traffic(assembly, forecast, [&](const QueueInfo& queue, const std::string& axis, double bytes) {
    json.name(queue.name).begin_object().member("axis", axis).member("bytes", bytes).end_object();
  });
  json.end_object();
}

void write_forecast(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.name("prediction");
  if (!forecast.prediction) {
    json.null().member("prediction_missing", forecast.missing);
    return;
  }
  const Simulation& simulation = forecast.prediction->simulation;
  json.begin_object().member("step_seconds", simulation.step_seconds);
  json.member("tokens_per_second", tokens_per_second(assembly, simulation));
  json.member("exposed_communication_seconds", forecast.exposed.communication);
  json.member("slowed_by_exchanges_seconds", simulation.slowed_by_exchanges());
  if (const auto& range = forecast.prediction->range)
    json.member("least_step_seconds", simulation.step_seconds * range->first)
        .member("most_step_seconds", simulation.step_seconds * range->second);
  json.name("notes").begin_array();
  for (const std::string& note : forecast.prediction->notes) json.value(note);
  json.end_array().end_object();
}

void write_batch(JsonWriter& json, const BatchArithmetic& batch) {
  json.name("batch").begin_object();
  json.member("global", batch.global).member("micro", batch.micro).member("accumulate", batch.accumulate);
  json.member("ranks", batch.ranks).member("seq", batch.seq).member("tokens", batch.tokens()).end_object();
}

void write_process(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.member("process_bytes", assembly.process_bytes());
  json.member("process_device_bytes", assembly.process_device_bytes());
  json.member("saved_bytes", assembly.process_need().saved_bytes);
  json.member("save_memory_bytes", assembly.process_need().save_bytes);
  if (forecast.save) {
    json.member("save_seconds", forecast.save->seconds);
    json.member("save_delay_seconds", forecast.save->delay.value_or(forecast.save->still));
  }
}

}  // namespace

std::string plan_json(const Assembly& assembly, const Forecast& forecast, const std::string& chosen) {
  const Plan& plan = assembly.plan();
  JsonWriter json;
  json.begin_object().member("auto", chosen);
  write_batch(json, assembly.batch());
  write_ramp(json, assembly, forecast);
  write_period(json, forecast);
  json.member("parameters", assembly.parameters());
  json.member("functions", plan.functions.size()).member("calls", plan.calls.size());
  json.member("fingerprint", sha256_hex(assembly.fingerprint()));
  json.member("model_flops", step_flops(assembly));
  json.member("recompute", recomputed_text(assembly.unlowered()));
  json.member("recomputed_flops", again_flops(assembly));
  write_assumed(json, assembly);
  json.name("to_fit").begin_array();
  for (const std::string& said : assembly.program().requests().said_to_fit) json.value(said);
  json.end_array();
  json.member("memory_bytes", plan.layout.bytes_in_memory());
  if (assembly.pipeline()) {
    json.name("stage_memory_bytes").begin_array();
    for (const std::int64_t bytes : memory_of_stages(assembly)) json.value(bytes);
    json.end_array();
  }
  write_process(json, assembly, forecast);
  write_crowded_host(json, assembly);
  const std::vector<PurposeBytes> purposes = bytes_by_purpose(assembly.program(), plan);
  write_purposes(json, purposes);
  write_ranges(json, plan, purposes);
  write_grid(json, assembly, forecast);
  write_dealt(json, assembly.program());
  write_offload(json, assembly, forecast);
  write_pipeline(json, assembly);
  write_forecast(json, assembly, forecast);
  return json.end_object().take();
}

}  // namespace prun
