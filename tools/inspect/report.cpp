// Reports the plan to people.
#include "inspect/report.hpp"

#include <numeric>

#include "base/format.hpp"
#include "base/narrow.hpp"
#include "base/text.hpp"
#include "estimate/number_text.hpp"
#include "inspect/assumed.hpp"
#include "inspect/dealt_report.hpp"
#include "inspect/offload_report.hpp"
#include "inspect/pipeline_report.hpp"
#include "inspect/plan_facts.hpp"
#include "inspect/purposes.hpp"
#include "program/fp8_products.hpp"
#include "program/gathered_inputs.hpp"
#include "program/recompute.hpp"
#include "program/saved_codes.hpp"
#include "program/weight_codes.hpp"

namespace prun {
namespace {

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

// Says which values of all layers are kept in codes instead of as they are, on one rank and for one
// microbatch.
std::string saved_text(const Assembly& assembly) {
  const Program& program = assembly.program();
  if (assembly.recipe().text("precision.activations") == "compute") return "";
  std::string text;
  for (Id id = 0; id < program.segment_count(); ++id) {
    const SavedInCodes saved = saved_in_codes(program, id);
    if (saved.values == 0) continue;
    text += format("%s%lld of %s (%s a layer instead of %s)", text.empty() ? "" : "; ",
                   static_cast<long long>(saved.values), program.segment(id).name.c_str(),
                   size_text(saved.bytes).c_str(), size_text(saved.bytes_before).c_str());
  }
  return "saved       in codes: " + (text.empty() ? "nothing" : text) + "\n";
}

// Says how many products of a layer multiply codes of weights that are kept, on one rank.
std::string weight_codes_text(const Assembly& assembly) {
  const Program& program = assembly.program();
  if (!assembly.recipe().flag("precision.cache_weights")) return "";
  std::string text;
  for (Id id = 0; id < program.segment_count(); ++id) {
    const WeightCodes codes = weight_codes(program, id);
    if (codes.products == 0) continue;
    text += format("%s%lld of %lld products of %s (%s a layer%s)", text.empty() ? "" : "; ",
                   static_cast<long long>(codes.of_codes), static_cast<long long>(codes.products),
                   program.segment(id).name.c_str(), size_text(codes.bytes).c_str(),
                   codes.come_together ? ", as ranks gather them" : "");
  }
  return "weights     as codes for a step: " + text + "\n";
}

// Says how many gathers of activations a layer has, and how many of them are of codes.
std::string gathered_inputs_text(const Assembly& assembly) {
  const Program& program = assembly.program();
  if (assembly.recipe().text("precision.all_gather_inputs") == "compute") return "";
  std::string text;
  for (Id id = 0; id < program.segment_count(); ++id) {
    const GatheredInputs inputs = gathered_inputs(program, id);
    if (inputs.in_codes == 0) continue;
    text += format("%s%lld of %lld gathers of activations of %s", text.empty() ? "" : "; ",
                   static_cast<long long>(inputs.in_codes), static_cast<long long>(inputs.gathers),
                   program.segment(id).name.c_str());
  }
  return "inputs      in codes: " + (text.empty() ? "nothing" : text) + "\n";
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

// Returns "40 % in device memory, 60 % in pinned host memory" for tensors that have their home in several
// places.
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
  if (assembly.recipe().text("precision.matmul") != "compute")
    text +=
        format("products    %.1f %% of the FLOPs of layers' products in %s\n",
               100 * share_in_fp8(assembly.program()), assembly.recipe().text("precision.matmul").c_str());
  text += saved_text(assembly) + weight_codes_text(assembly) + gathered_inputs_text(assembly);
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

}  // namespace prun
