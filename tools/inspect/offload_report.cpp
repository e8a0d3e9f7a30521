#include "inspect/offload_report.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/text.hpp"
#include "estimate/links.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/number_text.hpp"

namespace prun {
namespace {

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
    updates.all += plan.find(FunctionKind::update, i) >= 0;
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
  return text + speculation_text(assembly.plan(), forecast) + links_text(assembly, forecast) +
         shared_text(forecast);
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

}  // namespace prun
