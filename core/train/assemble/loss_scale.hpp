// What the loss is multiplied by before backward, so that small gradients are not lost in halves: a number
// that falls where a gradient is not finite and rises where long none was. The host works it out from how
// steps ended, and stages it as it does the learning rate (program/step.hpp).
#pragma once

#include <cstdint>

#include "recipe/diagnostics.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Between two steps; a run saves it.
struct LossScale {
  double scale = 0;         // 0: the recipe scales no loss
  std::int64_t clean = 0;   // steps since the last one that was not finite
  std::int64_t spared = 0;  // how many that are not finite it takes until the scale falls

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

class LossScaler {
 public:
  // The recipe has passed check_loss_scale().
  explicit LossScaler(const Recipe& recipe);

  // Returns the scale of a run's first step.
  LossScale begin() const;
  // Returns the scale of a run that goes on from what was saved.
  LossScale resumed(const LossScale& saved) const;
  LossScale after(LossScale now, bool finite) const;
  // Says whether one more that is not finite ends the run: the scale must fall, and can't.
  bool is_spent(const LossScale& now) const;

 private:
  bool falls(const LossScale& now) const { return moves_ && now.spared <= 1; }

  bool moves_ = false;
  bool ends_at_least_ = false;  // a fall below the least ends the run
  bool restored_at_once_ = false;
  std::int64_t late_ = 0;  // steps without one that is not finite before those of a window are counted
  std::int64_t window_ = 1, hysteresis_ = 1;
  double initial_ = 0, least_ = 1;
};

bool scales_loss(const Recipe& recipe);
// What a step whose loss or gradient is not finite does to the run.
bool skips_non_finite(const Recipe& recipe);

void check_loss_scale(const Recipe& recipe, Diagnostics& problems);

}  // namespace prun
