// States what planning knows of a rank's devices and of the recipe's settings. Example: a plan for two GPUs
// of another machine takes kernels and thread counts from PlanDevice, without either GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbered.hpp"
#include "program/step_program.hpp"
#include "prun/device.hpp"
#include "prun/program.hpp"

namespace prun {

// ------------------------------------------------------------------- plan devices

struct OfferedKernel {
  const KernelDef* def = nullptr;  // null if there is none
  std::string by;                  // origin: "op plugin 'squared-relu'"
};

// A device of the rank: its kernels, the threads that workspaces are for, and the memory that it reaches.
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
  Numbered<PlanDevice> devices;  // the first is the recipe's
  // Instances share collectives of up to so many bytes; 0: each has its own; nothing: see order/bundles.hpp.
  std::optional<std::int64_t> bundle;
  SpareMemory spare;
  // Saves are read while the next steps run: see derive_save_reads().
  bool saves_beside = false;
  // Guard bytes before and after every value and workspace: 0 or a multiple of the alignment.
  std::int64_t fence = 0;

  // Disks have none: no kernel computes there.
  std::int64_t fence_in(Space space) const { return space == Space::disk ? 0 : fence; }
};
inline constexpr std::int64_t fence_bytes = 1024;  // size of a fence, if there are any

// ------------------------------------------------------------------- op refusal
// Errors about ops that cannot be planned.

template <class... Parts>
[[noreturn]] void refuse_op(const Program& program, const Op& op, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "segment '", program.segment(op.segment).name, "', op '", op.kind(),
              "': ", detail::concat(parts...));
}

}  // namespace prun
