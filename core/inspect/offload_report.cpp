#include "inspect/offload_report.hpp"

#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

bool has_more_devices(const Assembly& assembly) { return assembly.device_infos().size() > 1; }

// Predicted, for which queues of further devices compute in a step: of the rank that has most of it.
std::optional<double> seconds_beside(const Forecast& forecast) {
  if (!forecast.prediction) return {};
  double most = 0;
  for (const RankTimes& rank : forecast.prediction->simulation.ranks) {
    const std::vector<QueueInfo>& queues = rank.simulated.plan->queues;
    double busy = 0;
    for (std::size_t q = 0; q < queues.size(); ++q)
      if (queues[q].device > 0 && queues[q].workers) busy += rank.times.busy[q];
    most = std::max(most, busy);
  }
  return most;
}

}  // namespace

MovedBytes moved_bytes(const Program& program, const Plan& plan) {
  constexpr MemoryPlace own{0, Space::device};
  const auto is_own = [&](const PlannedOperand& operand) {
    return plan.layout.ranges[static_cast<std::size_t>(operand.address.range)].place == own;
  };
  MovedBytes moved;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!step.kernel || !program.op(step.op).def->copies) continue;
      const bool from = is_own(step.operands.front()), to = is_own(step.operands.back());
      if (from && !to) moved.to_host += step.operands.front().address.bytes;
      if (to && !from) moved.to_device += step.operands.back().address.bytes;
    }
  return moved;
}

std::string offload_text(const Assembly& assembly, const Forecast& forecast) {
  if (!has_more_devices(assembly)) return "";
  const MovedBytes moved = moved_bytes(assembly.program(), assembly.plan());
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  std::string text = "offload     " + size(moved.to_host) + " a step from device memory to the host's, " +
                     size(moved.to_device) + " back\n";
  if (const std::optional<double> seconds = seconds_beside(forecast))
    text += format("  updates there %.1f ms a step, as predicted\n", *seconds * 1e3);
  return text;
}

void write_offload(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  if (!has_more_devices(assembly)) return;
  const MovedBytes moved = moved_bytes(assembly.program(), assembly.plan());
  json.name("offload").begin_object();
  json.member("to_host_bytes", moved.to_host).member("to_device_bytes", moved.to_device);
  if (const std::optional<double> seconds = seconds_beside(forecast)) json.member("update_seconds", *seconds);
  json.end_object();
}

}  // namespace prun
