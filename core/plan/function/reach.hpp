// Finds which memory each of a rank's devices reaches, and so which of them can run an op.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// Answers for the ops of a function that one device runs. It needs the homes of values that outlive it.
class Reach {
 public:
  Reach(const Program& program, const Lowering& lowering, const Plan& plan, std::int32_t device)
      : program_(program), lowering_(lowering), plan_(plan), device_(device) {}

  // Returns the number of the function's device.
  std::int32_t device() const { return device_; }
  const PlanDevice& device_at(std::int32_t number) const { return lowering_.devices[number]; }
  MemoryPlace place_of(Id value) const;

  // Says whether an op copies from one memory to another.
  bool crosses(const Op& op) const;
  // Returns the function's device or, for a copy that it cannot do, one that can: preferably one that does
  // the copy meanwhile.
  std::int32_t runner_of(const Op& op) const;
  // Throws an Error naming an operand that the device does not reach.
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
