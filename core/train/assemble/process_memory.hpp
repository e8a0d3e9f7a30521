// What a rank's process needs beside its plan, stated in advance.
#pragma once

#include <optional>
#include <span>

#include "base/safetensors.hpp"
#include "train/assemble/comm_needs.hpp"

namespace prun {

// What every process has besides its arena: code, libraries, stacks, the recipe, the program and its plans.
// 10.9 to 11.1 MiB are measured of a build that compiles files together, up to 12.8 of one that does not, and
// 13.4 with plugins of others, pipelines and tiers: the system maps code in pieces as large as its cache
// happens to hold. What is stated is the most.
inline constexpr std::int64_t base_process_bytes = std::int64_t{54} << 18;  // 13.5 MiB

struct ProcessNeed {
  std::int64_t bytes = 0;         // of the host
  std::int64_t device_bytes = 0;  // of the device
  // Of the host's, what a save passes through; what it would take to have all of it there at once.
  std::int64_t save_bytes = 0, saved_bytes = 0;
};

// The least that a save passes through, unless all that is saved is less: four pieces on their way.
inline constexpr std::int64_t least_save_bytes = 4 * checksum_chunk_bytes;

// Whether a plan has anything on drives; each request to those is of one piece, so for saves as many threads
// read at a time.
bool has_drives(const Plan& plan);
inline constexpr std::int64_t drive_readers = 4;
// Threads of a rank that read what is saved: one copies a fraction of what memory gives, and training waits
// for them; where cores are few they are training's.
std::int64_t save_readers(const Plan& plan, const DeviceInfo& device, std::int64_t world);

// What run.save_memory says.
struct SaveMemory {
  bool all = false;                   // everything is copied before training goes on
  std::optional<std::int64_t> bytes;  // nothing: what plans leave free
};
SaveMemory save_memory(const Recipe& recipe);

// With what the rank's devices and comm plugins state; `others`: its devices but the first.
ProcessNeed process_need(const RankTraffic& rank, std::span<const DeviceInfo> others);

// The host's threads that a rank may use while no step runs: where the device does not compute on the host's
// cores, all of them are idle, and the ranks of the host share them.
std::size_t host_threads(const DeviceInfo& device, std::int64_t world);
// What they read tensors of a checkpoint through before the first step, a piece each at a time; 0 where the
// recipe starts from none.
std::int64_t reading_bytes(const Recipe& recipe, const DeviceInfo& device, std::int64_t world);

}  // namespace prun
