#include "train/assemble/process_memory.hpp"

#include <algorithm>
#include <set>
#include <thread>

#include "base/text.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- comm needs

std::string comm_of_axis(const Recipe& recipe, PluginHost& plugins, const std::string& axis) {
  const RecipeSection section = recipe.section("comm");
  std::string first, plugin;
  for (const std::string_view one : split(axis, '+')) {
    const std::string single(one.substr(0, one.find('.')));  // the axis' name in the recipe
    std::string name = section.has(single) ? section.text(single) : section.text("default");
    if (name == automatic) name = automatic_comm(recipe, plugins);
    if (first.empty()) first = single, plugin = name;
    if (name != plugin)
      throw_error(ErrorCode::bad_input, "cannot use comm.", first, " = \"", plugin, "\" and comm.", single,
                  " = \"", name, "\": some collectives are over both axes; name one plugin for both");
  }
  return plugin;
}

std::shared_ptr<CommInterface> make_comm(const Recipe& recipe, const DeviceInfo& device, PluginHost& plugins,
                                         const std::string& name) {
  auto plugin = plugins.create<CommInterface>("comm", name, recipe);
  CommInfo info;
  raise(plugin->info(&info));
  if (device.host_memory ? !info.host_memory : !info.device_memory && (!info.host_memory || info.enqueues))
    throw_error(ErrorCode::unsupported, "cannot use comm plugin '", name, "' with device '",
                device.name.view(), "': it does not move ", device.host_memory ? "host" : "device",
                " memory; name another in [comm]");
  if (info.enqueues && !device.asynchronous)
    throw_error(ErrorCode::unsupported, "cannot use comm plugin '", name, "' with device '",
                device.name.view(),
                "': it only enqueues, and the device has no asynchronous queues; name another in [comm]");
  return plugin;
}

// ------------------------------------------------------------------- process memory

ProcessNeed process_need(const RankTraffic& rank, std::span<const DeviceInfo> others) {
  ProcessNeed all{base_process_bytes + rank.device.process_bytes, rank.device.process_device_bytes};
  for (const DeviceInfo& device : others) all.bytes += device.process_bytes;
  std::set<std::string> known;
  each_comm(rank, [&](const QueueTraffic& queue) {
    const CommInfo& info = queue.comm;
    const bool first = known.emplace(info.name.view()).second;
    const std::int64_t communicators = first && info.splits ? 2 : 1;  // one communicator more of all ranks
    all.bytes += (first ? info.process_bytes : 0) + communicators * info.communicator_bytes +
                 queue.needs.memory_bytes + queue.staging.bytes;
    all.device_bytes +=
        (first ? info.process_device_bytes : 0) + communicators * info.communicator_device_bytes;
  });
  return all;
}

bool has_drives(const Plan& plan) {
  return std::any_of(plan.layout.ranges.begin(), plan.layout.ranges.end(), [](const Layout::Range& range) {
    return range.place.space == Space::disk && range.bytes() > 0;
  });
}

std::int64_t save_readers(const Plan& plan, const DeviceInfo& device, std::int64_t world) {
  if (has_drives(plan)) return drive_readers;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(host_threads(device, world)) / 4, 1, 4);
}

SaveMemory save_memory(const Recipe& recipe) {
  const std::string& said = recipe.text("run.save_memory");
  if (said.empty()) return {};
  if (said == "all") return {true, {}};
  return {false, recipe::parse_size(said)};
}

std::size_t host_threads(const DeviceInfo& device, std::int64_t world) {
  if (device.host_memory) return static_cast<std::size_t>(std::max(1, device.threads));
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t ranks = std::clamp<std::int64_t>(world, 1, std::max(1, device.units));
  return static_cast<std::size_t>(std::max<std::int64_t>(1, cores / ranks));
}

// Counts the piece as it is in the file, and as it is handed on; a split master counts as halves as well, and
// a parameter's start both as numbers and in the type that memory has.
std::int64_t reading_bytes(const Recipe& recipe, const DeviceInfo& device, std::int64_t world) {
  if (recipe.text("run.resume").empty() && recipe.text("model.init").empty()) return 0;
  const bool starts = recipe.text("run.resume").empty();
  const std::int64_t times = starts ? 4 : recipe.text("precision.master") == "split" ? 3 : 2;
  return static_cast<std::int64_t>(host_threads(device, world)) * times * checksum_chunk_bytes;
}

}  // namespace prun
