#include "train/loop/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace prun {

LearningRate::LearningRate(const Recipe& recipe)
    : kind_(recipe.text("optimizer.schedule.kind")),
      peak_(recipe.number("optimizer.lr")),
      final_(recipe.number("optimizer.schedule.final")),
      warmup_(recipe.integer("optimizer.schedule.warmup")),
      end_(recipe.integer("optimizer.schedule.steps")) {
  if (end_ == 0) end_ = recipe.integer("run.steps");
}

double LearningRate::at(std::int64_t update) const {
  if (update <= warmup_) return peak_ * static_cast<double>(update) / static_cast<double>(warmup_);
  if (kind_ == "constant") return peak_;
  const double span = static_cast<double>(std::max<std::int64_t>(1, end_ - warmup_));
  const double done = std::min(1.0, static_cast<double>(update - warmup_) / span);
  const double shape = kind_ == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return peak_ * (final_ + (1 - final_) * shape);
}

}  // namespace prun
