// An op with the operands of an example, as a segment that can be run and differentiated.
#pragma once

#include <memory>

#include "conform/differentiated.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

// In that precision. An op without a gradient is never run backward. `registry` has the op, and gets what
// weighs several results together.
class OpTrial {
 public:
  OpTrial(const std::shared_ptr<OpRegistry>& registry, const OpExample& example, DType type,
          KernelsOf kernels);

  const OpDef& def() const { return def_; }
  bool has_gradient() const { return differentiated_ != nullptr; }
  // Forward, and backward where there is one.
  void run(const Interpreter::Before& before);
  // How gradients and differences part, as a sentence; empty: they agree. In fp64, of an op with a gradient.
  std::string gradient_problem();

 private:
  Id statistics(const std::string& name, Array<Dim> dims);
  std::unique_ptr<Program> write(const std::shared_ptr<OpRegistry>& registry, DType type);
  Id operand(std::size_t i, const ExampleOperand& example);
  Id result(const Op& op);
  void draw(Interpreter& values, const Program& program) const;

  const OpExample& example_;
  const OpDef& def_;
  KernelsOf kernels_;
  std::vector<Id> operands_;
  Objective objective_;
  std::unique_ptr<Program> program_;  // until backward is derived
  std::unique_ptr<Interpreter> forward_;
  std::unique_ptr<Differentiated> differentiated_;
};

}  // namespace prun
