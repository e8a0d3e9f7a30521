// The search for what a recipe leaves out: bounds first, then plans without proof, of which the best are gone
// on from, and the best of all planned whole and proven. It counts candidates, never seconds: the same recipe
// and cost table give the same answer, on however many threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/tune/space.hpp"
#include "train/tune/tune_trial.hpp"

namespace prun {

enum class TuneGoal : std::uint8_t {
  time,    // the shortest step
  memory,  // the least memory of the fullest rank, and of those the shortest step
  tokens,  // the most tokens a second, of batches that may grow; within a hundredth of it the smallest batch
};

struct TuneRequest {
  TuneWish wish;
  TuneGoal goal = TuneGoal::time;
  std::size_t shown = 10;
  std::size_t threads = 0;  // 0: as many as this process has cores
  bool why = true;          // with sentences about what it came to, which takes more plans
  std::function<void(const std::string& line)> say = {};  // how far it is; nothing: nobody listens
};

// Returns "time", "memory" or "tokens".
std::string_view name_of(TuneGoal goal);

struct TunedCandidate {
  std::vector<std::string> sets;  // over the recipe without [mesh]
  std::string text;
  Planned planned;
  bool proven = false;
  std::optional<double> trained = {};  // seconds of a step, of those that were tried
};

struct TuneResult {
  std::int64_t ranks = 1, ranks_of_host = 1;
  std::vector<TunedCandidate> best;       // by the goal; the first is proven
  std::vector<TunedCandidate> too_large;  // planned, and lacking memory, the likeliest first
  std::string recipe;                     // the first's, which says everything
  std::int64_t looked_at = 0, ruled_out = 0, planned = 0, refused = 0, lacked_memory = 0;
  std::vector<std::string> left_out;  // what was not varied, and why
  std::vector<std::string> why;       // what bounds the best, why the next loses, what more would give
  std::string refusal;                // the commonest, where nothing is left
};

std::size_t threads_of(const TuneRequest& request);

// Ranks that a recipe is laid out for: those wished for, those of run.ranks, those of its mesh, or as many as
// the device has units here.
std::int64_t ranks_to_tune(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish);

// Tunes a recipe that names its device. Throws bad_input where nothing fits, and says what was tried.
TuneResult tune(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                const TuneRequest& request);
// The two halves of that: without sentences and the recipe, and these for whichever leads by then.
TuneResult search(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                  const TuneRequest& request);
void conclude(const Recipe& recipe, PluginHost& plugins, const CostTable& costs, const TuneRequest& request,
              TuneResult& result);

// Returns what one of those found is, as ranks have it.
Recipe recipe_of(const TunedCandidate& candidate, const Recipe& recipe, PluginHost& plugins);

// That result's recipe as it is to be planned, with the words of the first where nobody gave others.
std::string tuned_toml(const Recipe& tuned, const std::vector<std::string>& sets);

}  // namespace prun
