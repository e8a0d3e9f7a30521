// What strategies ask the core for instead of editing the program themselves: passes of the core, and the
// planner, do it when a phase is over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/mesh.hpp"
#include "prun/program.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

// What a segment's backward computes again instead of keeping it from forward.
struct RecomputeChoice {
  enum class Kind : std::uint8_t { nothing, full, ops } kind = Kind::nothing;
  std::vector<std::string> op_kinds;  // with Kind::ops
};

// The ranks of axes keep state, and what else is said, in equal parts.
struct PartsRequest {
  std::vector<AxisId> axes;
  KeptInParts kept;
  // Of parameters, these have a copy among them, by which each use gathers them; empty: there is none.
  std::vector<AxisId> copy_axes = {};
};

// The chain is cut into stages that the ranks of an axis share out.
struct PipelineRequest {
  AxisId axis = 0;
  std::string schedule;
  std::int32_t chunks = 1;
  std::vector<std::int64_t> layers;  // of each stage; empty: cut by cost
};

// What the recipe and plugins say of tiers, for strategies that ask.
struct KnownTiers {
  // By plugin: throws an Error that says so where it is no tier.
  std::function<void(std::string_view plugin)> check;
  // Those of the recipe's tables, in its order.
  std::function<std::vector<std::string>()> of_recipe;
};

// An axis as two: `parts` ranks of it split one dimension, and the rest of them another, `within`.
struct FactoredAxis {
  std::string axis;
  std::int64_t parts = 1;
  std::string within;
  // Weights are split likewise, not ops alone. Where these change from one dimension to two, the rest comes
  // in front: what has the first dimension alone changes to it before the rest have it alike.
  bool weights = true;
  friend bool operator==(const FactoredAxis&, const FactoredAxis&) = default;
};

struct Requests {
  // Each throws an Error where it cannot be.
  void keep_in_parts(const Mesh& mesh, const std::vector<std::string_view>& axes, KeptInParts asked);
  void copy_within(const Mesh& mesh, const std::vector<std::string_view>& axes);
  void lay_pipeline(const Mesh& mesh, std::string_view axis, std::string_view schedule, std::int32_t chunks,
                    std::vector<std::int64_t> layers);
  // One more device of each rank, by its plugin; returns its number.
  std::int32_t add_device(std::string_view plugin);
  // The same of a tier.
  std::int32_t add_tier(std::string_view plugin);
  Array<Text> tiers_of_recipe();
  // The number of the way to go, of those said in words; that beyond the last is the last.
  std::size_t choose_to_fit(const std::vector<std::string>& ways);

  // Dimensions on axes: core/placement works out the rest. Earlier ones come first where a value has several.
  std::vector<Split> splits;
  std::vector<PartsRequest> parts;  // core/placement/pack makes them
  // An axis that the mesh must have as two before the program is written.
  std::optional<FactoredAxis> factored;
  // These of `splits` stand for exchanges that a strategy wants: ops take another dimension for them
  // (split_beyond).
  std::vector<Split> exchanged;
  std::optional<PipelineRequest> pipeline;
  // Whose ranks share out sequences, and how these lie then.
  std::optional<AxisId> sequence_axis;
  SequenceOrder sequence_order;
  // Plugins of the devices beside the recipe's: those numbered 1, 2, ...
  std::vector<std::string> more_devices;
  KnownTiers known_tiers;  // set before strategies run
  // Those of the recipe's tables: nothing where no strategy has asked for them.
  std::optional<std::vector<std::string>> tiers;
  std::vector<Text> tier_texts;  // the same, as they were last handed out

  // What segments compute again that leave it to the planner, and which of the ways that strategies leave to
  // it they go: set before strategies run.
  RecomputeChoice planned_recompute;
  std::size_t way_to_fit = 0;
  // How many ways there are to choose from, and what was chosen, in the words of those who asked.
  std::size_t ways_to_fit = 1;
  std::vector<std::string> said_to_fit;
};

}  // namespace prun
