// Decides what a run does between two steps, and after which.
#pragma once

#include <chrono>
#include <cstdint>

#include "recipe/recipe.hpp"

namespace prun {

class RunSchedule {
 public:
  // `alone` says that there is no rank to compare with.
  RunSchedule(const Recipe& recipe, bool alone)
      : steps_(recipe.integer("run.steps")),
        save_every_(recipe.integer("run.save_every")),
        compare_every_(alone ? 0 : recipe.integer("run.compare_every")),
        eval_every_(recipe.integer("eval.every")) {}

  std::int64_t steps() const { return steps_; }
  bool saves_after(std::int64_t step) const { return is_multiple(step, save_every_); }
  bool compares_after(std::int64_t step) const { return is_multiple(step, compare_every_); }
  bool evaluates() const { return eval_every_ > 0; }
  bool evaluates_after(std::int64_t step) const { return is_multiple(step, eval_every_); }
  // Says whether the next step may begin while this one runs.
  bool goes_on_after(std::int64_t step) const {
    return step < steps_ && !saves_after(step) && !compares_after(step) && !evaluates_after(step);
  }

 private:
  static bool is_multiple(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

  std::int64_t steps_, save_every_, compare_every_, eval_every_;  // number of steps; 0: never
};

// Requests a save each so many minutes; 0: never.
class SaveTimer {
 public:
  explicit SaveTimer(double minutes) : minutes_(minutes) {}
  void restart() { since_ = Clock::now(); }
  bool is_over() const { return minutes_.count() > 0 && Clock::now() - since_ >= minutes_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double, std::ratio<60>> minutes_;
  Clock::time_point since_{};
};

}  // namespace prun
