// Finds what a recipe leaves open: axes of the mesh, strategies and their options, the microbatch, keys of
// the core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "program/mesh.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- variables
// Reads what a strategy lets the planner vary, as its note says: whether it may be added, what its axis is,
// and which of its options may have which values.

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

// ------------------------------------------------------------------- open choices

// ------------------------------------------------------------ candidate

// Describes one way to fill in what a recipe leaves out.

// Maps an option to its value, as --set takes it.
using ChosenOptions = std::map<std::string, std::string>;

struct Candidate {
  std::vector<Axis> mesh;  // axes in the order in which recipes write them
  std::int64_t global = 1, micro = 1;
  ChosenOptions keys;                  // keys of the core: {"batch.order", "breadth_first"}
  std::vector<bool> there;             // whether each part of the space is there
  std::vector<ChosenOptions> options;  // options by part of the space

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

inline bool operator==(const Axis& a, const Axis& b) { return a.name == b.name && a.extent == b.extent; }

struct TuneScope {
  std::int64_t ranks = 0;  // 0: ranks of the recipe's mesh, or run.ranks, or as many as the host has units
  std::int64_t hosts = 0;  // 0: the device says how many ranks a host has
  bool rounding = false;   // whether choices that round otherwise may be taken
  std::int64_t most_batch = 0;  // limit up to which batch.global may grow; 0: it stays
};

// Describes a strategy that the recipe has, or that may be added.
struct SpacePart {
  StrategyVariables variables;
  std::optional<std::size_t> place;         // place among those of the recipe
  std::string axis;                         // axis that it brings, or that the recipe names
  std::optional<ChosenOptions> frees = {};  // what its note says that frees memory: the most of each option
  ChosenOptions initial = {};  // what may be varied, at its first value in the recipe or the note

  // Says whether it brings an axis whose extent is searched for.
  bool brings_axis() const { return variables.axis == AxisUse::own; }
};

// Lists keys of the core that are varied beside the mesh, the microbatch and strategies.
const std::vector<VariedOption>& varied_keys();

struct OpenChoices {
  std::vector<SpacePart> parts;
  std::vector<std::size_t> free;  // parts with an axis whose extent is searched for
  std::vector<Axis> said_mesh;
  std::int64_t ranks = 1, rest = 1;   // all ranks, and those that free axes share out
  std::vector<std::int64_t> globals;  // possible values of batch.global, the recipe's first
  std::optional<std::int64_t> said_micro;
  bool pads = false;
  std::vector<VariedOption> keys;  // keys of the core
  // This lists what stays as it is although it might be varied, and why: a sentence each.
  std::vector<std::string> left_out;
};

// Throws bad_input if the ranks cannot be those of the given mesh.
OpenChoices open_choices(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope,
                         std::int64_t ranks);

}  // namespace prun
