// Determines which memory each of a rank's devices reaches, and so which device can run an op. Example: a
// copy from pinned memory to a GPU runs on the GPU's copy queue; one from a drive runs on the tier, since no
// GPU reaches disks.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// For the ops of a function. Needs the allocations of values that outlive it.
class Reach {
 public:
  Reach(const Program& program, const Lowering& lowering, const Plan& plan, std::int32_t device)
      : program_(program), lowering_(lowering), plan_(plan), device_(device) {}

  std::int32_t device() const { return device_; }
  const PlanDevice& device_at(std::int32_t number) const { return lowering_.devices[number]; }
  MemoryPlace place_of(Id value) const;

  // Returns true if the op copies between two memories.
  bool crosses(const Op& op) const;
  // Returns the function's device or, for a copy that it cannot do, one that can, preferably one that can do
  // it concurrently.
  std::int32_t runner_of(const Op& op) const;
  // Throws an Error that names an operand out of the device's reach.
  void check(const Op& op, std::int32_t device) const;

 private:
  bool reaches(std::int32_t device, MemoryPlace place) const;
  bool reaches_all(std::int32_t device, const Op& op) const;
  std::string device_text(std::int32_t device) const;

  const Program& program_;
  const Lowering& lowering_;
  const Plan& plan_;
  const std::int32_t device_;
};

}  // namespace prun
