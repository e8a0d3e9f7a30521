// What a recipe leaves out, and what may stand there: axes of the mesh, strategies and their options, the
// microbatch, the order of microbatches, bundles. Strategies are known by what their notes say.
#pragma once

#include <optional>
#include <set>
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

// Keys of the core that are varied beside the mesh, the microbatch and strategies.
const std::vector<VariedOption>& varied_keys();

class TuneSpace {
 public:
  // Throws bad_input where the ranks cannot be those of the mesh that is said.
  TuneSpace(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish, std::int64_t ranks);

  const std::vector<SpacePart>& parts() const { return parts_; }
  std::int64_t ranks() const { return ranks_; }
  // What stays as it is although it could be thought of, and why: a sentence each.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // Every way to share the ranks out over axes with every microbatch, nothing else added.
  std::vector<Candidate> starts() const;
  // The same candidate with strategies that free memory, the mildest first.
  std::vector<Candidate> freed(const Candidate& candidate) const;
  // All that differ from a candidate in one thing.
  std::vector<Candidate> moves(const Candidate& candidate) const;
  // The same with its axes in every other order on the ranks.
  std::vector<Candidate> orders(const Candidate& candidate) const;
  // As --set takes it, over a recipe without [mesh].
  std::vector<std::string> sets(const Candidate& candidate) const;
  // "dp 4 x tp 2, micro 2, zero stage 1, tensor sequence true"
  std::string text(const Candidate& candidate) const;
  // How many times the recipe's batch a step of it takes.
  double batches(const Candidate& candidate) const {
    return static_cast<double>(candidate.global) / static_cast<double>(globals_.front());
  }

 private:
  void add_recipe_parts(const Recipe& recipe, PluginHost& plugins);
  void add_others(PluginHost& plugins, bool rounding);
  void keep_options(const Recipe& recipe, bool rounding);
  void read_mesh(const Recipe& recipe);
  void set_ranks(std::int64_t ranks);
  void read_keys(const Recipe& recipe);
  void read_batches(const Recipe& recipe, std::int64_t most);

  bool is_free(const SpacePart& part) const;
  std::int64_t extent(const Candidate& candidate, const std::string& axis) const;
  std::int64_t batch_ranks(const Candidate& candidate) const;
  std::vector<std::string> batch_axes(const Candidate& candidate) const;
  std::vector<std::int64_t> micros(const Candidate& candidate) const;
  std::optional<Candidate> with_extents(const std::vector<std::int64_t>& extents, std::int64_t global) const;
  std::optional<Candidate> with_part(Candidate candidate, std::size_t part, const std::string& value) const;
  void add_batch_moves(const Candidate& candidate, std::vector<Candidate>& moves) const;
  void add_axis_moves(const Candidate& candidate, std::vector<Candidate>& moves) const;
  void add_part_moves(const Candidate& candidate, std::vector<Candidate>& moves) const;
  void settle_micro(Candidate& candidate) const;
  std::vector<std::int64_t> free_extents(const Candidate& candidate) const;

  std::vector<SpacePart> parts_;
  std::vector<std::size_t> free_;  // parts whose axis's extent is looked for
  std::vector<Axis> said_mesh_;
  std::int64_t ranks_ = 1, rest_ = 1;  // all, and those that free axes share out
  std::vector<std::int64_t> globals_;  // that batch.global may be, the recipe's first
  std::optional<std::int64_t> said_micro_;
  bool pads_ = false;
  std::vector<VariedOption> keys_;  // of the core
  std::vector<std::string> left_out_;
};

}  // namespace prun
