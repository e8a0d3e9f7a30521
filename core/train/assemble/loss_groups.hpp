// Finds which targets of a training step have a loss that is reported separately: those of each data set, of
// each role of conversations, or of both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

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

}  // namespace prun
