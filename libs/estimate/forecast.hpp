// Gives the prediction for a recipe's plan, or says why there is none.
#pragma once

#include <filesystem>
#include <optional>

#include "estimate/predict.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_ramp.hpp"

namespace prun {

// Predicts one save, by run.save_rate.
struct SaveForecast {
  double seconds = 0;  // time until all is on the disk
  // The steps after it end so much later; this is nothing if no prediction says what they take. Training
  // pauses for `still` of it or, if it goes on beside the save, for at most so long.
  std::optional<double> delay = {};
  double still = 0;
  // Says whether the delay is what the save's bytes take of the drives that state lies on, as if checkpoints
  // went there too.
  bool of_drives = false;
  std::optional<Simulation> simulation = {};
};

// Describes the steps before the batch is full, and the full ones, if it grows.
struct RampForecast {
  BatchRamp::Stretch stretch;
  std::optional<double> step_seconds = {};
};

// Describes steps without the ops of `periodic`, which run in one step of `period`: Forecast has that one.
struct PeriodForecast {
  std::int64_t period = 1;
  std::optional<double> between = {}, mean = {};  // seconds of such a step, and of all on average
  std::uint64_t sent = 0;                         // payload bytes that this rank sends in such a step
};

// Holds seconds of a step that nothing hides, each of the rank with most of it.
struct Exposed {
  // The device waits for exchanges, or for copies and updates elsewhere; neither counts what they wait for
  // drives.
  double communication = 0, transfers = 0;
  std::optional<double> drives = {};  // a step is so much longer than if tiers took no time; nothing if none

  friend bool operator==(const Exposed&, const Exposed&) = default;
};

struct Forecast {
  std::optional<Prediction> prediction;
  std::string missing;  // why there is none: one sentence, with the command that helps
  Exposed exposed = {};
  std::optional<SaveForecast> save = {};  // set if the recipe saves
  std::vector<RampForecast> ramp = {};    // forecasts by size, in turn; empty if no batch grows
  std::optional<PeriodForecast> period = {};
  // This rank sends so many payload bytes in a step, by queue, as its comm plugins count.
  std::vector<std::uint64_t> sent = {};
};

// Predicts the step alone, by a table. Throws not_found for what it does not contain. `ranks_of_host` of 0
// means as the device says.
Prediction predict_step(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                        std::int64_t ranks_of_host = 0);
// Says what of a step that this table predicts nothing hides, of as many ranks of a host.
Exposed exposed_of(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                   const Simulation& step, std::int64_t ranks_of_host = 0);
// Returns for how long the busiest rank's tiers work in a step, both ways together.
double seconds_of_drives(const Assembly& assembly, const Simulation& step);
// Returns the bytes that a rank like this sends in a step at most, by queue, as its comm plugins count.
std::vector<std::uint64_t> sent_of(const Assembly& assembly, PluginHost& plugins);

// Says whether rates that come with prun may stand for what was not measured.
enum class RatesUse : std::uint8_t { allowed, forbidden };

// `costs` is the cost table that was named; nothing: the machine's own, which may be missing or damaged.
Forecast forecast(const Assembly& assembly, PluginHost& plugins,
                  const std::optional<std::filesystem::path>& costs, RatesUse rates = RatesUse::allowed);

}  // namespace prun
