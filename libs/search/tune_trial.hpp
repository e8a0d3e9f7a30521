// Tries one candidate: it finds the cost, by its program alone or by its plan.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimate/costs.hpp"
#include "estimate/forecast.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun {

// ------------------------------------------------------------------- tune trial

// Holds what all trials share: nothing in it changes.
struct TrialBase {
  std::string recipe;  // recipe without [mesh]: all that is the same for all candidates
  std::vector<SearchPlace> places;
  const CostTable* costs = nullptr;
  std::int64_t ranks_of_host = 0;  // 0: the device says how many
};

enum class Fate : std::uint8_t {
  refused,    // the combination is impossible
  unpriced,   // the cost table lacks a figure for it
  too_large,  // there is not enough memory
  good,
};

// Holds an estimate by program and outlines, before anything is planned.
struct Estimate {
  Fate fate = Fate::refused;
  std::string why;         // if it is not good, the first line of the refusal
  double least = 0;        // seconds that no plan of it can beat
  double likely = 0;       // likely seconds
  std::int64_t bytes = 0;  // least memory of the fullest rank on the recipe's device
};

struct PlaceBytes {
  std::string place;  // name such as "device memory", "pinned host memory of device 1"
  std::int64_t bytes = 0;
};
struct LinkBytes {
  std::string queue, axis;
  double bytes = 0;  // bytes that the first rank sends in a step
};

// Holds the results of planning and of the simulation of the plan.
struct Planned {
  Fate fate = Fate::refused;
  std::string why;
  double step_seconds = 0;
  std::optional<std::pair<double, double>> range;  // set if rates that were not measured here are part of it
  Exposed exposed;
  double bubble = 0;  // share of a step in which a pipeline's ranks are idle, by its order alone
  double tokens_per_second = 0;
  double mfu = 0;                 // share of the known peak; 0: unknown
  double model_flops = 0;         // model FLOPs of a step
  double busy = 0;                // seconds of a step in which the busiest rank computes
  std::int64_t device_bytes = 0;  // bytes of the fullest rank
  std::int64_t lacking = 0;       // missing bytes if it is too large, as far as that is known
  std::vector<PlaceBytes> memory;
  std::vector<LinkBytes> sent;
  std::vector<std::string> notes;  // what the prediction is based on
};

// Holds what one thread works with: plugins of its own.
class Trial {
 public:
  explicit Trial(const TrialBase& base);

  Recipe recipe(const std::vector<std::string>& sets);
  Estimate estimate(const std::vector<std::string>& sets);
  // Plans a candidate; `proven` says that it is planned as for a run.
  Planned plan(const std::vector<std::string>& sets, bool proven);
  // Returns what an assembly's step takes by another table.
  Planned look(const Assembly& assembly, const CostTable& costs);

 private:
  Estimate estimate_of(PlanMaker& maker, const PlannedChoice& choice);
  std::int64_t limit_of(const Assembly& written) const;

  const TrialBase& base_;
  PluginHost plugins_;
};

// ------------------------------------------------------------------- unmeasured
// Computes how much of a step's predicted time is based on kernels that were not measured as they are.

struct Unmeasured {
  double seconds = 0;        // seconds of a step, of the plan with most of them
  int rank = 0;              // rank of that plan
  std::int64_t kernels = 0;  // number of shapes that are not in the table
};

Unmeasured unmeasured_of(const Assembly& assembly, const CostTable& costs);

}  // namespace prun
