// Launches kernels of a device of this machine in the device's own way, beside those of the CPU.
#pragma once

#include "conform/kernel_trial.hpp"
#include "prun/device.hpp"

namespace prun {

class DeviceLaunches {
 public:
  // The device must outlive this. Throws where it cannot be used here.
  explicit DeviceLaunches(DeviceInterface& device);

  // Throws an Error that names op and operand where results differ by more than rounding; unsupported where
  // the device has no kernel for these types and shapes.
  void compare(const KernelDef& there, const KernelDef& on_cpu, const KernelCall& call);
  // Returns the operands afterwards; throws unsupported likewise.
  std::vector<TrialOperand> launch(const KernelDef& kernel, const KernelCall& call);

 private:
  void compare(const KernelCall& call, const std::vector<TrialOperand>& got,
               const std::vector<TrialOperand>& want, const char* when) const;

  DeviceInterface& device_;
  DeviceInfo info_;
};

}  // namespace prun
