// Runs a chain of segments with its gradients, and checks these against what it computes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "conform/interpreter.hpp"

namespace prun {

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
