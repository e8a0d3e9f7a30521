// Reads what a recipe says of the loss: the scale that keeps fp16 gradients in range, and the groups of
// tokens that it is reported by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recipe/diagnostics.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- loss groups
// Finds which targets of a training step have a loss that is reported separately: those of each data set, of
// each role of conversations, or of both.

// Gives each role of each set a group of its own, in the order of sets and roles; data that know no roles
// have one group.
class LossGroups {
 public:
  static LossGroups of(const Recipe& recipe, PluginHost& plugins);

  // Returns the number of groups; 0 means that no such losses are requested.
  std::int64_t count() const { return count_; }
  // Returns the first group of a set, by its number among those that are blended.
  std::int64_t first(std::size_t set) const { return sets_[set].first; }
  bool has_roles(std::size_t set) const { return !sets_[set].roles.empty(); }
  std::int64_t roles(std::size_t set) const { return static_cast<std::int64_t>(sets_[set].roles.size()); }

  // Holds, for some groups together, the mean over the targets that count.
  struct Part {
    std::string name;  // name such as "data.blend.0", "role.assistant"
    double loss = 0;
    std::int64_t targets = 0;
  };
  // Returns what sums by group, each a loss and a number of targets, give by set and by role, as far as the
  // recipe asks; parts in which no target counts are left out.
  std::vector<Part> parts(std::span<const double> sums) const;

 private:
  struct Set {
    std::string name;
    std::vector<std::string> roles;
    std::int64_t first = 0;
  };

  std::vector<Set> sets_;
  bool by_set_ = false, by_role_ = false;
  std::int64_t count_ = 0;
};

// ------------------------------------------------------------------- loss scale
// Scales the loss before backward, so that small gradients are not lost in halves: the factor falls when a
// gradient is not finite and rises when none was for long. The host computes it from how steps ended, and
// stages it as it does the learning rate (program/step.hpp).

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
