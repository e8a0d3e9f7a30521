// Reads what a strategy lets the planner vary, as its note says: whether it may be added, what its axis is,
// and which of its options may have which values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Says how a choice changes a step's numbers.
enum class Exactness : std::uint8_t {
  exact,    // they stay the same, up to the order of sums
  rounds,   // they are rounded otherwise
  changes,  // the mathematics differ
};

struct VariedOption {
  std::string key;                  // key of the strategy's options
  std::vector<std::string> values;  // values; the first is used if the strategy is added
  Exactness exactness = Exactness::exact;
};

enum class AxisUse : std::uint8_t {
  nothing,  // the strategy has no axis
  own,      // the strategy brings one
  batch,    // the axis is one or all of those that the batch is split over
};

struct StrategyVariables {
  std::string plugin, phase;
  std::optional<Exactness> added;  // effect of adding it; nothing: its note does not say
  AxisUse axis = AxisUse::nothing;
  std::string own_axis;    // default of its option axis
  bool many_axes = false;  // whether the option takes several
  bool splits_batch = false;
  std::vector<VariedOption> options;
  std::vector<std::string> never;  // options of other mathematics
};

// Throws bad_input if the note's traits name unknown options or values.
StrategyVariables variables_of(const PluginNote& strategy, PluginHost& plugins);

}  // namespace prun
