// This optimizer wraps another one and keeps, beside its state, an average of the weights that it makes. The
// average is a state like its moments, so all that is done to those is done to it: parts, tiers, saves,
// layouts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prun/optimizer.hpp"

namespace prun {

// This is the name of the state, and the end of its tensor's name in checkpoints.
inline constexpr const char* average_state = "average";

class AveragedOptimizer final : public OptimizerInterface {
 public:
  AveragedOptimizer(std::shared_ptr<OptimizerInterface> optimizer, double decay)
      : optimizer_(std::move(optimizer)), decay_(decay) {}

  Status states(Array<Text>* names) noexcept override;
  Status states_of(const ParameterShape& parameter, Array<StateSpec>* states) noexcept override;
  Status update(const ProgramApi* api, void* program, Id segment,
                const UpdateContext& context) noexcept override;

 private:
  std::shared_ptr<OptimizerInterface> optimizer_;
  double decay_;
  std::vector<Text> names_;
  std::vector<StateSpec> specs_;
};

}  // namespace prun
