// States in advance what a rank's process needs beside its plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors.hpp"
#include "plan/exchange_needs.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- comm needs
// Finds which comm plugin carries the traffic of an axis, and what each plugin will send and need for a plan.

// Returns the name of the comm plugin that carries an axis' traffic; several axes together ("dp+cp") have
// one.
std::string comm_of_axis(const Recipe& recipe, PluginHost& plugins, const std::string& axis);

// Makes a comm plugin; throws if it cannot move what is in the device's memory.
std::shared_ptr<CommInterface> make_comm(const Recipe& recipe, const DeviceInfo& device, PluginHost& plugins,
                                         const std::string& name);

// Holds a rank and everything that decides on its communication.
struct RankTraffic {
  const Recipe& recipe;
  const DeviceInfo& device;
  PluginHost& plugins;
  const Mesh& mesh;
  const Plan& plan;
  std::int64_t rank;
};

// Describes a queue that communicates.
struct QueueTraffic {
  std::size_t queue = 0;
  CommInfo comm;
  CommNeeds needs;
  StagingNeeds staging;
};

// Calls body(queue's traffic) for every queue of a rank that communicates.
template <class Body>
void each_comm(const RankTraffic& of, Body&& body) {
  std::map<std::string, std::shared_ptr<CommInterface>> by_name;
  for (std::size_t q = 0; q < of.plan.queues.size(); ++q) {
    if (!of.plan.queues[q].communicates()) continue;
    const std::string name = comm_of_axis(of.recipe, of.plugins, of.mesh.name(of.plan.queues[q].axis));
    std::shared_ptr<CommInterface>& comm = by_name[name];
    if (!comm) comm = make_comm(of.recipe, of.device, of.plugins, name);
    QueueTraffic traffic;
    traffic.queue = q;
    raise(comm->info(&traffic.comm));
    const bool staged = is_staged(of.device, traffic.comm);
    traffic.needs = planned_needs(of.mesh, of.plan, of.rank, *comm, q, staged);
    if (staged)
      traffic.staging = staging_needs(
          of.plan, q, static_cast<std::int64_t>(of.plan.queues[q].members(of.mesh, of.rank).size()));
    body(traffic);
  }
}

// ------------------------------------------------------------------- process memory

// Every process has so much besides its arena, however long its step: code, libraries, stacks, the recipe,
// the program and its functions. 12.7 to 14 MiB are measured of a build that compiles files together, of
// which 11.3 to 11.8 are files: the system maps code in pieces as large as its cache happens to hold. This
// number is the most.
inline constexpr std::int64_t base_process_bytes = std::int64_t{60} << 18;  // 15 MiB
// A tensor that lasts takes so much for its name, shape and places, as it is filled, saved and compared. A
// run of 7,200 tensors has a peak that is 10 MiB higher where it saves its end.
inline constexpr std::int64_t bytes_of_tensor = 2560;

struct ProcessNeed {
  std::int64_t bytes = 0;         // bytes of host memory
  std::int64_t device_bytes = 0;  // bytes of device memory
  // A save passes through so much host memory; the second number is what it would take to have all of it
  // there at once.
  std::int64_t save_bytes = 0, saved_bytes = 0;
  std::int64_t call_bytes = 0;    // bytes that it keeps of its plan's calls
  std::int64_t tensor_bytes = 0;  // bytes for the tensors that it fills, saves and compares
};

// A save passes through at least so much, unless all that is saved is less: four pieces on their way.
inline constexpr std::int64_t least_save_bytes = 4 * checksum_chunk_bytes;

// Says whether a plan has anything on drives; each request to drives is of one piece, so for saves as many
// threads read at a time.
bool has_drives(const Plan& plan);
inline constexpr std::int64_t drive_readers = 4;
// Returns the threads of a rank that read what is saved: one thread copies at a fraction of the rate of
// memory, and training waits for them; where cores are few, training needs them.
std::int64_t save_readers(const Plan& plan, const DeviceInfo& device, std::int64_t world);

// Holds what run.save_memory says.
struct SaveMemory {
  bool all = false;                   // whether everything is copied before training goes on
  std::optional<std::int64_t> bytes;  // nothing: as much as plans leave free
};
SaveMemory save_memory(const Recipe& recipe);

// Returns the need, including what the rank's devices and comm plugins state; `others` are its devices but
// the first.
ProcessNeed process_need(const RankTraffic& rank, std::span<const DeviceInfo> others);

// Returns the host's threads that a rank may use while no step runs: if the device does not compute on the
// host's cores, all of them are idle, and the ranks of the host share them.
std::size_t host_threads(const DeviceInfo& device, std::int64_t world);
// Returns the memory through which threads read tensors of a checkpoint before the first step, a piece each
// at a time; 0 if the recipe starts from none.
std::int64_t reading_bytes(const Recipe& recipe, const DeviceInfo& device, std::int64_t world);

}  // namespace prun
