// Keeps the results of evaluations: which one was the best, and whether the others since are too many.
#pragma once

#include <cstdint>
#include <optional>

#include "recipe/recipe.hpp"
#include "train/checkpoint/best_checkpoint.hpp"

namespace prun {

class BestSoFar {
 public:
  // `before` is the best of the run so far, which is at `step`.
  BestSoFar(const Recipe& recipe, std::optional<BestCheckpoint> before, std::int64_t step)
      : keeps_(recipe.flag("eval.keep_best")), patience_(recipe.integer("eval.patience")) {
    const std::int64_t every = recipe.integer("eval.every");
    if (!before || before->step > step || every == 0) return;
    best_ = before;
    missed_ = step / every - before->step / every;
  }

  void take(std::int64_t step, double loss) {
    const bool lower = !best_ || loss < best_->loss;
    if (lower) best_ = {step, loss};
    missed_ = lower ? 0 : missed_ + 1;
  }
  // Says whether the checkpoint of this step is to be kept as the best.
  bool keeps(std::int64_t step) const { return keeps_ && best_ && best_->step == step; }
  bool is_over() const { return patience_ > 0 && missed_ >= patience_; }
  const std::optional<BestCheckpoint>& best() const { return best_; }

 private:
  bool keeps_;
  std::int64_t patience_, missed_ = 0;
  std::optional<BestCheckpoint> best_;
};

}  // namespace prun
