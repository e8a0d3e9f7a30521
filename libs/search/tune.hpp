// Searches for what a recipe leaves out: bounds first, then plans without proof, of which the best are varied
// further; the best of all is planned whole and proven. It counts candidates, never seconds: the same recipe
// and cost table give the same answer, on any number of threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search/space.hpp"
#include "search/tune_trial.hpp"

namespace prun {

enum class TuneGoal : std::uint8_t {
  time,    // shortest step
  memory,  // least memory of the fullest rank, and of those the shortest step
  tokens,  // most tokens a second, of batches that may grow; within a hundredth of it the smallest batch
};

struct TuneRequest {
  TuneScope scope;
  TuneGoal goal = TuneGoal::time;
  std::size_t shown = 10;
  std::size_t threads = 0;  // 0: as many threads as this process has cores
  bool why = true;          // whether to add sentences about the result, which needs more plans
  std::function<void(const std::string& line)> say = {};  // gets progress; may be empty
};

// Returns the name "time", "memory" or "tokens".
std::string_view name_of(TuneGoal goal);

struct TunedCandidate {
  std::vector<std::string> sets;  // settings over the recipe without [mesh]
  std::string text;
  Planned planned;
  bool proven = false;
  std::optional<double> trained = {};  // seconds of a step that was tried
};

// Counts ways that the cost table lacks a figure for, and says for most of them which, and the settings of
// one of these.
struct UnpricedWays {
  std::int64_t count = 0;
  std::string why;
  std::vector<std::string> sets;
};
std::string to_text(const UnpricedWays& unpriced);

struct TuneResult {
  std::int64_t ranks = 1, ranks_of_host = 1;
  std::vector<TunedCandidate> best;       // ordered by the goal; the first is proven
  std::vector<TunedCandidate> too_large;  // planned candidates that lack memory, the likeliest first
  std::string recipe;                     // whole recipe of the first
  std::int64_t looked_at = 0, ruled_out = 0, planned = 0, refused = 0, lacked_memory = 0;
  std::vector<std::string> left_out;  // what was not varied, and why
  std::vector<std::string> why;       // what bounds the best, why the next loses, what more would give
  UnpricedWays unpriced;
  std::string refusal;  // most common reason of the others, if nothing is left
};

std::size_t threads_of(const TuneRequest& request);

// Returns the ranks that a recipe is laid out for: the requested ones, those of run.ranks, those of its mesh,
// or as many as the device has units here.
std::int64_t ranks_to_tune(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope);

// Tunes a recipe that names its device. Throws bad_input if nothing fits, and says what was tried.
TuneResult tune(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                const TuneRequest& request);
// These are the two halves of that: the search without sentences and the recipe; and those for the candidate
// that leads by then.
TuneResult search(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                  const TuneRequest& request);
void conclude(const Recipe& recipe, PluginHost& plugins, const CostTable& costs, const TuneRequest& request,
              TuneResult& result);

// Returns the recipe of a candidate, as ranks have it.
Recipe recipe_of(const TunedCandidate& candidate, const Recipe& recipe, PluginHost& plugins);

// Writes that result's recipe as it is to be planned, with the settings of the first unless others are given.
std::string tuned_toml(const Recipe& tuned, const std::vector<std::string>& sets);

}  // namespace prun
