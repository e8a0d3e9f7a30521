#include "train/assemble/process_memory.hpp"

#include <algorithm>
#include <set>
#include <thread>

namespace prun {

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
