// Runs the functions of one segment op by op, each value in memory of its own: no planner, no executor. Ops
// and gradients are tried with it. It is the only rank, so that exchanges between ranks are copies.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "conform/kernel_trial.hpp"
#include "program/passes.hpp"
#include "prun/device.hpp"

namespace prun {

// Returns the CPU's kernel of an op, or null.
using KernelsOf = std::function<const KernelDef*(std::string_view op)>;

// Returns the kernels of a device of kind "cpu", which must outlive them.
KernelsOf kernels_of(DeviceInterface& device);

class Interpreter {
 public:
  // `program` and what `kernels` come from must outlive it.
  Interpreter(const Program& program, KernelsOf kernels);

  // Returns zeros until the value is set or written.
  std::vector<double> numbers(Id id);
  void set(Id id, const std::vector<double>& numbers);

  // `before` is called with each op that a kernel runs, and its operands, in front of the launch.
  using Before = std::function<void(const KernelDef& kernel, const KernelCall& call)>;
  void run(Id segment, FunctionKind kind, const Before& before = {});

 private:
  TrialOperand& operand(Id id);
  void run_op(const Op& op, const Before& before);

  const Program& program_;
  KernelsOf kernels_;
  std::map<Id, TrialOperand> values_;
};

}  // namespace prun
