// Runs what `prun plugins check` asks of op plugins: each op with the operands of its examples, its gradient,
// and what that emits.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "conform/conformance.hpp"
#include "conform/op_trial.hpp"

namespace prun {

// Holds the ops of one plugin, or prun's own, with their examples and CPU kernels.
struct OpsOnTrial {
  std::shared_ptr<OpRegistry> registry;
  std::vector<OpDef> ops;
  std::vector<OpExample> examples;
  KernelsOf kernels;
  // must be told what is tried next
  Doing doing;
  std::int64_t wide = 0;  // how wide rows are when gradients are tried once more; 0: they are not
};

// Each of these throws an Error for the first op that is wrong.
CheckFinding check_memory(const OpsOnTrial& trial);
CheckFinding check_threads(const OpsOnTrial& trial);
CheckFinding check_gradients(const OpsOnTrial& trial);
CheckFinding check_marks(const OpsOnTrial& trial);
// Checks the ops that a device has, against the CPU's.
CheckFinding check_on_device(const OpsOnTrial& trial, DeviceInterface& device, const KernelsOf& there);

// Returns all ops of prun's own, with the kernels of the CPU.
OpsOnTrial builtin_ops_on_trial(const KernelsOf& kernels, Doing doing);

// Returns the ops of an op plugin among others, with the kernels of the device `cpu` for all other ops.
OpsOnTrial ops_of(OpPluginInterface& plugin, const std::string& name, KernelsOf others, Doing doing);

}  // namespace prun
