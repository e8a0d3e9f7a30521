// States in advance what a rank's process needs beside its plan.
#pragma once

#include <optional>
#include <span>

#include "base/safetensors.hpp"
#include "train/assemble/comm_needs.hpp"

namespace prun {

// What every process has besides its arena, however long its step: code, libraries, stacks, the recipe, the
// program and its functions. 12.7 to 14 MiB are measured of a build that compiles files together, of which
// 11.3 to 11.8 are files: the system maps code in pieces as large as its cache happens to hold. What is
// stated is the most.
inline constexpr std::int64_t base_process_bytes = std::int64_t{60} << 18;  // 15 MiB
// Names, shapes and places of a tensor that lasts, as it is filled, saved and compared.
inline constexpr std::int64_t bytes_of_tensor = 1024;

struct ProcessNeed {
  std::int64_t bytes = 0;         // of the host
  std::int64_t device_bytes = 0;  // of the device
  // A save passes through so much of the host's memory; the second is what it would take to have all of it
  // there at once.
  std::int64_t save_bytes = 0, saved_bytes = 0;
  std::int64_t call_bytes = 0;    // and what it keeps of its plan's calls
  std::int64_t tensor_bytes = 0;  // of the tensors that it fills, saves and compares
};

// The least that a save passes through, unless all that is saved is less: four pieces on their way.
inline constexpr std::int64_t least_save_bytes = 4 * checksum_chunk_bytes;

// Says whether a plan has anything on drives; each request to those is of one piece, so for saves as many
// threads read at a time.
bool has_drives(const Plan& plan);
inline constexpr std::int64_t drive_readers = 4;
// Threads of a rank that read what is saved: one copies a fraction of what memory gives, and training waits
// for them; where cores are few they are training's.
std::int64_t save_readers(const Plan& plan, const DeviceInfo& device, std::int64_t world);

// States what run.save_memory says.
struct SaveMemory {
  bool all = false;                   // everything is copied before training goes on
  std::optional<std::int64_t> bytes;  // nothing: what plans leave free
};
SaveMemory save_memory(const Recipe& recipe);

// Includes what the rank's devices and comm plugins state; `others` are its devices but the first.
ProcessNeed process_need(const RankTraffic& rank, std::span<const DeviceInfo> others);

// The host's threads that a rank may use while no step runs: where the device does not compute on the host's
// cores, all of them are idle, and the ranks of the host share them.
std::size_t host_threads(const DeviceInfo& device, std::int64_t world);
// Returns what threads read tensors of a checkpoint through before the first step, a piece each at a time; 0
// where the recipe starts from none.
std::int64_t reading_bytes(const Recipe& recipe, const DeviceInfo& device, std::int64_t world);

}  // namespace prun
