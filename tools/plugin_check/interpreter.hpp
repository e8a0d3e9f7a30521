// Runs the functions of one segment op by op, each value in memory of its own: no planner, no executor. Ops
// and gradients are tried with it. It is the only rank, so that exchanges between ranks are copies.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin_check/kernel_trial.hpp"
#include "program/passes.hpp"
#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- interpreter

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

// ------------------------------------------------------------------- differentiated
// Runs a chain of segments with its gradients, and checks these against what it computes.

// Reduces what a chain computes to one number whose gradients backward gives: its result times the incoming
// gradient, or a loss that it adds to.
struct Objective {
  Id result = none;
  Id loss = none, loss_scale = none;  // are runtime values
};

class Differentiated {
 public:
  // `program` is forward alone. A segment that repeats is run once. Parameters and values from segments
  // before are drawn; inputs and runtime values are the caller's to set.
  Differentiated(std::unique_ptr<Program> program, const Objective& objective, KernelsOf kernels,
                 double spread = 1);

  const Program& program() const { return *program_; }
  Interpreter& values() { return values_; }
  Id arriving() const;  // the gradient of the last segment's result

  double objective(const Interpreter::Before& before = {});
  // Runs backward as well, with gradients that begin at zero.
  void differentiate(const Interpreter::Before& before = {});
  std::vector<double> gradient(Id parameter) { return values_.numbers(program_->value(parameter).gradient); }

  // Says where gradients are farthest from differences of the objective, element by element, in fp64, for a
  // limited number of elements of each parameter. It is empty where none is farther than tolerance * (1 +
  // |difference|).
  struct Miss {
    Id parameter = none;
    std::size_t element = 0;
    double gradient = 0, difference = 0;
  };
  std::optional<Miss> compare(double tolerance, std::size_t most_elements);

 private:
  Id last() const { return program_->segment_count() - 1; }

  std::unique_ptr<Program> program_;
  Objective objective_;
  Interpreter values_;
};

}  // namespace prun
