// Lists the optimizers of a recipe. Value::optimizer, a number into this list, says which of them updates a
// parameter: the first is [optimizer]'s, the others those that groups of parameters name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "prun/optimizer.hpp"

namespace prun {

// Says what an update must have whole.
enum class UpdateUnit : std::uint8_t {
  unknown,  // the optimizer does not say: never in parts
  element,  // nothing: the optimizer treats all elements alike
  tensor,   // whole parameters
  matrix,   // whole parameters that are made of matrices
};

struct NamedOptimizer {
  std::string name;  // name of the plugin
  UpdateUnit unit = UpdateUnit::unknown;
  std::shared_ptr<OptimizerInterface> plugin;
  bool sums_in_update = false;  // ranks sum what it makes of gradients, if gradients travel as signs

  bool updates_whole() const { return unit == UpdateUnit::tensor || unit == UpdateUnit::matrix; }
};
using Optimizers = Numbered<NamedOptimizer>;

// Returns a list of one optimizer, which updates all parameters and outlives the list.
inline Optimizers one_optimizer(OptimizerInterface& optimizer, UpdateUnit unit = UpdateUnit::element) {
  return {{"", unit, std::shared_ptr<OptimizerInterface>(std::shared_ptr<void>(), &optimizer), false}};
}

}  // namespace prun
