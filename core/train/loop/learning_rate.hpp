// Computes the learning rate of each update.
#pragma once

#include <vector>

#include "recipe/recipe.hpp"

namespace prun {

class LearningRate {
 public:
  // Takes a recipe that has passed check_combinations().
  explicit LearningRate(const Recipe& recipe);

  // Returns the rate of update 1, 2, ...; updates that were masked do not count.
  double at(std::int64_t update) const;

 private:
  using Shape = double (LearningRate::*)(double update) const;

  static Shape shape_named(const std::string& kind);
  // These are shares of the peak, of an update behind the warm-up.
  double constant(double update) const;
  double linear(double update) const;
  double cosine(double update) const;
  double polynomial(double update) const;
  double wsd(double update) const;
  double inverse_sqrt(double update) const;
  double steps(double update) const;
  double points(double update) const;

  double done(double update, double begin) const;
  double fallen(double left) const { return final_ + (1 - final_) * left; }

  Shape shape_;
  std::string falls_;
  double peak_, final_, power_, decay_;
  double warmup_, end_;
  std::vector<double> at_, factors_;
};

}  // namespace prun
