// Tries an op with the operands of an example, as a segment that can be run and differentiated.
#pragma once

#include <memory>

#include "conform/differentiated.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

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

}  // namespace prun
