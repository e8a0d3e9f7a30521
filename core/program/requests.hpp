// Holds what strategies request from the core instead of editing the program themselves: passes of the core,
// and the planner, do it when a phase is over.
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

// Says what a segment's backward computes again instead of keeping it from forward.
struct RecomputeChoice {
  enum class Kind : std::uint8_t { nothing, full, ops } kind = Kind::nothing;
  std::vector<std::string> op_kinds;  // kinds of ops, with Kind::ops
};

// Requests that the ranks of axes keep state, and what `kept` adds, in equal parts.
struct PartsRequest {
  std::vector<AxisId> axes;
  KeptInParts kept;
  // The ranks of these axes have a copy of parameters among them, by which each use gathers them; if it is
  // empty, there is none.
  std::vector<AxisId> copy_axes = {};
};

// Requests that the chain is cut into stages that the ranks of an axis share out.
struct PipelineRequest {
  AxisId axis = 0;
  std::string schedule;
  std::int32_t chunks = 1;
  std::vector<std::int64_t> layers;  // instances of each stage; empty: cut by cost
};

// Holds what the recipe and plugins say of tiers, for strategies that read it.
struct KnownTiers {
  // Throws an Error if the plugin is no tier.
  std::function<void(std::string_view plugin)> check;
  // Lists the plugins of the recipe's tables, in its order.
  std::function<std::vector<std::string>()> of_recipe;
};

// Makes an axis two: `parts` ranks of it split one dimension, and the rest of them another, `within`.
struct FactoredAxis {
  std::string axis;
  std::int64_t parts = 1;
  std::string within;
  // If set, weights are split likewise, not ops alone. Where weights change from one dimension to two, the
  // rest comes in front: values with the first dimension alone change to it before the rest have them alike.
  bool weights = true;
  friend bool operator==(const FactoredAxis&, const FactoredAxis&) = default;
};

struct Requests {
  // Each of these three throws an Error where the request cannot be met.
  void keep_in_parts(const Mesh& mesh, const std::vector<std::string_view>& axes, KeptInParts asked);
  void copy_within(const Mesh& mesh, const std::vector<std::string_view>& axes);
  void lay_pipeline(const Mesh& mesh, std::string_view axis, std::string_view schedule, std::int32_t chunks,
                    std::vector<std::int64_t> layers);
  // Adds one more device of each rank, by its plugin; returns its number.
  std::int32_t add_device(std::string_view plugin);
  // Does the same for a tier.
  std::int32_t add_tier(std::string_view plugin);
  Array<Text> tiers_of_recipe();
  // Returns the number of the way to take, of those described in words; a number beyond the last means the
  // last.
  std::size_t choose_to_fit(const std::vector<std::string>& ways);

  // Puts dimensions on axes: core/placement derives the rest. Earlier ones come first where a value has
  // several.
  std::vector<Split> splits;
  std::vector<PartsRequest> parts;  // core/placement/pack makes them
  // Names an axis that the mesh must have as two before the program is written.
  std::optional<FactoredAxis> factored;
  // These of `splits` stand for exchanges that a strategy wants: ops take another dimension for them
  // (split_beyond).
  std::vector<Split> exchanged;
  std::optional<PipelineRequest> pipeline;
  // The ranks of this axis share out sequences, which then lie in this order.
  std::optional<AxisId> sequence_axis;
  SequenceOrder sequence_order;
  // Names the plugins of the devices beside the recipe's: those numbered 1, 2, ...
  std::vector<std::string> more_devices;
  KnownTiers known_tiers;  // set before strategies run
  // Lists the tiers of the recipe's tables, once a strategy has read them.
  std::optional<std::vector<std::string>> tiers;
  std::vector<Text> tier_texts;  // the same, as it was last returned

  // These say what segments compute again that leave it to the planner, and which of the strategies' ways the
  // plan takes: they are set before strategies run.
  RecomputeChoice planned_recompute;
  std::size_t way_to_fit = 0;
  // These say how many ways there are to choose from, and which were chosen, in the words of the strategies.
  std::size_t ways_to_fit = 1;
  std::vector<std::string> said_to_fit;
};

}  // namespace prun
