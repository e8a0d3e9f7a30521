// Holds what strategies request from the core instead of editing the program themselves: passes of the core,
// and the planner, do it when a phase is over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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

// Requests that optimizer state is sharded over axes.
struct ShardRequest {
  std::vector<AxisId> axes;
  bool gradients = false, parameters = false;  // whether these are sharded too
  // The ranks of these axes have a secondary copy of parameters among them, from which each use gathers; if
  // it is empty, there is none.
  std::vector<AxisId> secondary = {};
  std::string asked_by = {};  // the section of the recipe whose strategy asks, and writes the collectives
};

// Requests that the chain is cut into stages that the ranks of an axis share out.
struct PipelineRequest {
  AxisId axis = 0;
  std::string schedule;
  std::int32_t chunks = 1;
  std::vector<std::int64_t> layers;  // instances of each stage
};

// Requests one more state of each updated parameter (ProgramApi::optimizer_state).
struct StateRequest {
  std::string name, op;
  std::vector<std::pair<std::string, double>> attrs;
  bool evaluated = false;
  std::string asked_by;  // the section of the recipe whose strategy asks
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

// Requests that ops of `periodic` run every `every` steps.
struct PeriodicRequest {
  std::int64_t every = 1;
  std::string asked_by;  // the section of the recipe whose strategy asks
};

// Requests that codes of parameters are gathered in their place where ranks have shards of them.
struct GatheredCodes {
  std::string asked_by = {};  // the section of the recipe whose strategy asks, and makes the codes
  std::map<Id, Id> of = {};   // by the parameter; these have no memory until they are gathered
};

// Requests that prun reports what ops have counted of quantized values (prun::QuantizationCounts).
struct QuantizationReport {
  struct Rows {
    std::string name;
    std::int64_t first = 0, layers = 1;
  };
  std::string asked_by;
  std::vector<Rows> values;
  std::int64_t every = 1;
  double bound = 1;
  Id on = none, counts = none, peaks = none;  // staging buffers: the first goes in, the others come out
};

// Numbers a way of strategies to make a plan fit, and one of sums that microbatches add to; or how many there
// are.
struct WayToFit {
  std::size_t strategies = 0, sums = 0;
};

struct Requests {
  // Each of these three throws an Error where the request cannot be met.
  void shard_state(const Mesh& mesh, Array<Text> axes, const Sharded& asked, const std::string& asked_by);
  void lay_pipeline(const Mesh& mesh, std::string_view axis, std::string_view schedule, std::int32_t chunks,
                    std::vector<std::int64_t> layers);
  void keep_state(const UpdatedState& state, const std::string& asked_by);
  // Adds one more device of each rank, by its plugin; returns its number.
  std::int32_t add_device(std::string_view plugin);
  // Does the same for a tier.
  std::int32_t add_tier(std::string_view plugin);
  Array<Text> tiers_of_recipe();
  // Returns the number of the way to take, of those described in words; a number beyond the last means the
  // last.
  std::size_t choose_to_fit(const std::vector<std::string>& ways);
  // Does so for sums of gradients that microbatches add to, for each way of the strategies anew.
  std::size_t choose_sums_to_fit(const std::vector<std::string>& ways);
  std::size_t chosen_of(const std::vector<std::string>& ways, std::size_t way, std::size_t& count);

  // Puts dimensions on axes: core/placement derives the rest. Earlier ones come first where a value has
  // several.
  std::vector<Split> splits;
  std::optional<ShardRequest> shards;  // core/placement/pack.cpp makes them
  std::vector<AxisId> varied;          // parameters vary along these axes (ProgramApi::vary)
  std::optional<PeriodicRequest> periodic;
  GatheredCodes gathered_codes;
  std::optional<QuantizationReport> quantization;
  std::optional<StateRequest> optimizer_state;
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
  WayToFit way_to_fit;
  // These say how many ways there are to choose from, and which were chosen, in the words of the strategies.
  WayToFit ways_to_fit = {1, 1};
  std::vector<std::string> said_to_fit;
};

}  // namespace prun
