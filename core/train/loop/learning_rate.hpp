// The learning rate of each update.
#pragma once

#include "recipe/recipe.hpp"

namespace prun {

class LearningRate {
 public:
  explicit LearningRate(const Recipe& recipe);

  // Of update 1, 2, ...; updates that were masked do not count.
  double at(std::int64_t update) const;

 private:
  std::string kind_;
  double peak_, final_;
  std::int64_t warmup_, end_;
};

}  // namespace prun
