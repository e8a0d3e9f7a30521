// What a strategy lets the planner vary, as its note says it: whether it may be added, what its axis is, and
// which of its options may have which values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Says what becomes of a step's numbers.
enum class Exactness : std::uint8_t {
  exact,    // the same, up to the order of sums
  rounds,   // rounded otherwise
  changes,  // other mathematics
};

struct VariedOption {
  std::string key;                  // of the strategy's options
  std::vector<std::string> values;  // the first is taken where the strategy is added
  Exactness exactness = Exactness::exact;
};

enum class AxisUse : std::uint8_t {
  nothing,  // it has no axis
  own,      // it brings one
  batch,    // one or all of those that the batch is split over
};

struct StrategyVariables {
  std::string plugin, phase;
  std::optional<Exactness> added;  // what adding it comes to; nothing: its note does not say
  AxisUse axis = AxisUse::nothing;
  std::string own_axis;    // what its option axis says by default
  bool many_axes = false;  // the option takes several
  bool splits_batch = false;
  std::vector<VariedOption> options;
  std::vector<std::string> never;  // options of other mathematics
};

// Throws bad_input where the note's traits name options or values that there are not.
StrategyVariables variables_of(const PluginNote& strategy, PluginHost& plugins);

}  // namespace prun
