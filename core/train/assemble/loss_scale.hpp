// Scales the loss before backward, so that small gradients are not lost in halves: the factor falls when a
// gradient is not finite and rises when none was for long. The host computes it from how steps ended, and
// stages it as it does the learning rate (program/step.hpp).
#pragma once

#include <cstdint>

#include "recipe/diagnostics.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Holds the state between two steps; a run saves it.
struct LossScale {
  double scale = 0;         // 0 if the recipe scales no loss
  std::int64_t clean = 0;   // steps since the last one that was not finite
  std::int64_t spared = 0;  // non-finite steps left until the scale falls

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

class LossScaler {
 public:
  // Takes a recipe that has passed check_loss_scale().
  explicit LossScaler(const Recipe& recipe);

  // Returns the scale of a run's first step.
  LossScale begin() const;
  // Returns the scale of a run that goes on from what was saved.
  LossScale resumed(const LossScale& saved) const;
  LossScale after(LossScale now, bool finite) const;
  // Says whether one more step that is not finite ends the run: the scale must fall, and cannot.
  bool is_spent(const LossScale& now) const;

 private:
  bool falls(const LossScale& now) const { return moves_ && now.spared <= 1; }

  bool moves_ = false;
  bool ends_at_least_ = false;  // whether a fall below the least ends the run
  bool restored_at_once_ = false;
  std::int64_t late_ = 0;  // finite steps needed before those of a window are counted
  std::int64_t window_ = 1, hysteresis_ = 1;
  double initial_ = 0, least_ = 1;
};

bool scales_loss(const Recipe& recipe);
// Says whether a step whose loss or gradient is not finite is skipped, rather than ending the run.
bool skips_non_finite(const Recipe& recipe);

void check_loss_scale(const Recipe& recipe, Diagnostics& problems);

}  // namespace prun
