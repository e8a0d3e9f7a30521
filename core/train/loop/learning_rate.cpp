#include "train/loop/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace prun {
namespace {

double cosine_of(double done) { return 0.5 * (1 + std::cos(std::numbers::pi * done)); }

}  // namespace

LearningRate::LearningRate(const Recipe& recipe)
    : shape_(shape_named(recipe.text("optimizer.schedule.kind"))),
      falls_(recipe.text("optimizer.schedule.shape")),
      peak_(recipe.number("optimizer.lr")),
      final_(recipe.number("optimizer.schedule.final")),
      power_(recipe.number("optimizer.schedule.power")),
      decay_(0),
      warmup_(static_cast<double>(recipe.integer("optimizer.schedule.warmup"))),
      end_(static_cast<double>(recipe.integer("optimizer.schedule.steps"))) {
  const RecipeSection optimizer = recipe.section("optimizer");
  if (end_ == 0) end_ = recipe.integer("run.steps");
  if (optimizer.has("schedule.decay")) decay_ = optimizer.integer("schedule.decay");
  for (const std::int64_t step : optimizer.integers("schedule.at")) at_.push_back(static_cast<double>(step));
  factors_ = optimizer.numbers("schedule.factors");
}

LearningRate::Shape LearningRate::shape_named(const std::string& kind) {
  if (kind == "linear") return &LearningRate::linear;
  if (kind == "cosine") return &LearningRate::cosine;
  if (kind == "wsd") return &LearningRate::wsd;
  if (kind == "inverse-sqrt") return &LearningRate::inverse_sqrt;
  if (kind == "polynomial") return &LearningRate::polynomial;
  if (kind == "steps") return &LearningRate::steps;
  return kind == "points" ? &LearningRate::points : &LearningRate::constant;
}

double LearningRate::at(std::int64_t update) const {
  const auto now = static_cast<double>(update);
  if (now <= warmup_) return peak_ * now / warmup_;
  return peak_ * (this->*shape_)(now);
}

// Returns the share of the way from `begin` to the end that has passed.
double LearningRate::done(double update, double begin) const {
  return std::clamp((update - begin) / std::max(1.0, end_ - begin), 0.0, 1.0);
}

double LearningRate::constant(double) const { return 1; }
double LearningRate::linear(double update) const { return fallen(1 - done(update, warmup_)); }
double LearningRate::cosine(double update) const { return fallen(cosine_of(done(update, warmup_))); }
double LearningRate::polynomial(double update) const {
  return fallen(std::pow(1 - done(update, warmup_), power_));
}

double LearningRate::wsd(double update) const {
  const double passed = done(update, end_ - decay_);
  if (falls_ == "cosine") return fallen(cosine_of(passed));
  return fallen(1 - (falls_ == "sqrt" ? std::sqrt(passed) : passed));
}

// Without a warm-up, the rate falls from the first update on.
double LearningRate::inverse_sqrt(double update) const {
  return std::max(final_, std::sqrt(std::max(1.0, warmup_) / update));
}

double LearningRate::steps(double update) const {
  const auto passed = std::lower_bound(at_.begin(), at_.end(), update) - at_.begin();
  return passed == 0 ? 1 : factors_[static_cast<std::size_t>(passed - 1)];
}

double LearningRate::points(double update) const {
  const auto behind = std::lower_bound(at_.begin(), at_.end(), update);
  if (behind == at_.begin()) return factors_.front();
  if (behind == at_.end()) return factors_.back();
  const auto i = static_cast<std::size_t>(behind - at_.begin());
  const double way = (update - at_[i - 1]) / (at_[i] - at_[i - 1]);
  return factors_[i - 1] + (factors_[i] - factors_[i - 1]) * way;
}

}  // namespace prun
