// Runs what `prun plugins check` asks of op plugins: each op with the operands of its examples, its gradient,
// and what that emits.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "plugin_check/conformance.hpp"
#include "plugin_check/interpreter.hpp"
#include "plugin_check/kernel_trial.hpp"
#include "prun/device.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

// ------------------------------------------------------------------- op trial
// Tries an op with the operands of an example, as a segment that can be run and differentiated.

// Tries an op in this precision. An op without a gradient is never run backward. `registry` has the op, and
// gets the ops that weigh several results together.
class OpTrial {
 public:
  // With a width, the last dimension of the example's first values has that extent, wherever it occurs.
  OpTrial(const std::shared_ptr<OpRegistry>& registry, const OpExample& example, DType type,
          KernelsOf kernels, std::int64_t width = 0);

  const OpDef& def() const { return def_; }
  bool has_gradient() const { return differentiated_ != nullptr; }
  // Runs forward, and backward where there is a gradient.
  void run(const Interpreter::Before& before);
  // Says in a sentence how gradients and differences disagree; empty means that they agree. It is for an op
  // with a gradient, in fp64.
  std::string gradient_problem();

 private:
  Id statistics(const std::string& name, Array<Dim> dims);
  std::unique_ptr<Program> write(const std::shared_ptr<OpRegistry>& registry, DType type);
  Id operand(std::size_t i, ExampleOperand example);
  Id result(const Op& op);
  void draw(Interpreter& values, const Program& program) const;

  const OpExample example_;
  const OpDef& def_;
  KernelsOf kernels_;
  const std::int64_t width_;
  std::vector<Id> operands_;
  Objective objective_;
  std::unique_ptr<Program> program_;  // is held until backward is derived
  std::unique_ptr<Interpreter> forward_;
  std::unique_ptr<Differentiated> differentiated_;
};

// ------------------------------------------------------------------- op checks

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

// ------------------------------------------------------------------- weigh
// Adds ops by which a trial makes one number of several results; no other code uses them.

// Adds weigh(y, weights) -> s = the sum of y * weights, and its gradient.
void add_weigh_ops(OpRegistry& registry);
// Returns the same kernels and those of these ops.
KernelsOf with_weigh_kernels(KernelsOf kernels);

// ------------------------------------------------------------------- device launches
// Launches kernels of a device of this machine in the device's own way, beside those of the CPU.

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
