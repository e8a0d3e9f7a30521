// Finds what a recipe leaves open: axes of the mesh, strategies and their options, the microbatch, keys of
// the core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.hpp"
#include "train/tune/candidate.hpp"
#include "train/tune/variables.hpp"

namespace prun {

struct TuneWish {
  std::int64_t ranks = 0;  // 0: those of the recipe's mesh, or of run.ranks, or as many as the host has units
  std::int64_t hosts = 0;  // 0: as the device says how many ranks a host has
  bool rounding = false;   // what rounds otherwise may be taken
  std::int64_t most_batch = 0;  // batch.global may grow to so many; 0: it stays
};

// A strategy that the recipe has, or that may be added.
struct SpacePart {
  StrategyVariables variables;
  std::optional<std::size_t> place;  // among those of the recipe
  std::string axis;                  // that it brings, or by the recipe's words
  bool frees = false;                // its note says that it frees memory
  ChosenOptions initial = {};        // what may be varied, as the recipe or the note has it first

  // It brings an axis whose extent is looked for.
  bool brings_axis() const { return variables.axis == AxisUse::own; }
};

// Lists keys of the core that are varied beside the mesh, the microbatch and strategies.
const std::vector<VariedOption>& varied_keys();

struct OpenChoices {
  std::vector<SpacePart> parts;
  std::vector<std::size_t> free;  // parts whose axis's extent is looked for
  std::vector<Axis> said_mesh;
  std::int64_t ranks = 1, rest = 1;   // all, and those that free axes share out
  std::vector<std::int64_t> globals;  // that batch.global may be, the recipe's first
  std::optional<std::int64_t> said_micro;
  bool pads = false;
  std::vector<VariedOption> keys;  // of the core
  // What stays as it is although it could be thought of, and why: a sentence each.
  std::vector<std::string> left_out;
};

// Throws bad_input where the ranks cannot be those of the mesh that is said.
OpenChoices open_choices(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish, std::int64_t ranks);

}  // namespace prun
