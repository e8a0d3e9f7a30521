// Looks at one candidate: what it would cost, by its program alone or by its plan.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulate/costs.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun {

// What is looked at, for everybody who looks: nothing of it changes.
struct TrialBase {
  std::string recipe;  // without [mesh]: all that is the same for all candidates
  std::vector<SearchPlace> places;
  const CostTable* costs = nullptr;
  std::int64_t ranks_of_host = 0;  // 0: as the device says
};

enum class Fate : std::uint8_t {
  refused,    // it cannot be combined so
  too_large,  // there is not the memory
  good,
};

// Is by program and outlines, before anything is planned.
struct Estimate {
  Fate fate = Fate::refused;
  std::string why;         // where it is not good: the first line of the refusal
  double least = 0;        // seconds that no plan of it comes below
  double likely = 0;       // seconds
  std::int64_t bytes = 0;  // of the fullest rank in memory of the recipe's device, at least
};

struct PlaceBytes {
  std::string place;  // "device memory", "pinned host memory of device 1"
  std::int64_t bytes = 0;
};
struct LinkBytes {
  std::string queue, axis;
  double bytes = 0;  // that the first rank sends in a step
};

// Is by its plan and the simulation of it.
struct Planned {
  Fate fate = Fate::refused;
  std::string why;
  double step_seconds = 0;
  std::optional<std::pair<double, double>> range;  // where rates nobody measured here are part of it
  double exposed = 0;                              // communication that nothing hides, in seconds of a step
  double bubble = 0;  // share of a step in which a pipeline's ranks stand idle, by its order alone
  double tokens_per_second = 0;
  double mfu = 0;                 // of the peak that is known; 0: none is
  double model_flops = 0;         // a step's
  double busy = 0;                // seconds of a step in which the busiest rank computes
  std::int64_t device_bytes = 0;  // of the fullest rank
  std::int64_t lacking = 0;       // where it is too large: by how much, if that is known
  std::vector<PlaceBytes> memory;
  std::vector<LinkBytes> sent;
  std::vector<std::string> notes;  // what the prediction rests on
};

// Holds what one thread works with: plugins of its own.
class Trial {
 public:
  explicit Trial(const TrialBase& base);

  Recipe recipe(const std::vector<std::string>& sets);
  Estimate estimate(const std::vector<std::string>& sets);
  // `proven`: as whoever runs it would plan it.
  Planned plan(const std::vector<std::string>& sets, bool proven);
  // Returns what an assembly's step takes by another table.
  Planned look(const Assembly& assembly, const CostTable& costs);

 private:
  Estimate estimate_of(PlanMaker& maker, const PlannedChoice& choice);
  std::int64_t limit_of(const Assembly& written) const;

  const TrialBase& base_;
  PluginHost plugins_;
};

}  // namespace prun
