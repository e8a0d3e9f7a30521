// States what planning needs to know of a rank's devices, and what the recipe leaves to planning.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbered.hpp"
#include "prun/device.hpp"
#include "prun/program.hpp"

namespace prun {

struct OfferedKernel {
  const KernelDef* def = nullptr;  // null if there is none
  std::string by;                  // origin: "op plugin 'squared-relu'"
};

// Describes a device of the rank: where its kernels come from, how many threads their workspaces are for, and
// which memory it reaches.
struct PlanDevice {
  std::function<OfferedKernel(std::string_view op)> kernel;
  std::int32_t threads = 1;
  std::string name, kind;
  bool host_memory = false, asynchronous = false, tier = false;
};

// States what plans do with memory to spare.
struct SpareMemory {
  // Copies that updates need of drives may take more memory than necessary, so that drives wait for nothing:
  // see update_time_slots().
  bool far_ahead = false;
  // At most so many instances are updated by `speculate` and `settle`.
  std::int32_t speculated = 0;
};

struct Lowering {
  Numbered<PlanDevice> devices;  // devices; the first is the recipe's
  // Instances exchange together up to so many bytes; 0: each exchanges alone; nothing: see plan/bundles.hpp.
  std::optional<std::int64_t> bundle;
  SpareMemory spare;
  // Saves are read beside the steps that follow them: see derive_save_reads().
  bool saves_beside = false;
  // So many bytes are kept free in front of every value and workspace, and as many behind it: 0 or a multiple
  // of the alignment.
  std::int64_t fence = 0;

  // Returns the fence in a space: no kernel computes with what is on a disk.
  std::int64_t fence_in(Space space) const { return space == Space::disk ? 0 : fence; }
};
inline constexpr std::int64_t fence_bytes = 1024;  // size of a fence, if there are any

}  // namespace prun
