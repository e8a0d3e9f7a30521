// Predicts a recipe's step before it runs, for `prun plan`, `tune` and the start of a run; or states why it
// cannot. Example: for a recipe with a save every 100 steps on a measured machine, forecast() returns the
// step's time, what of it is exposed communication, and how long a save takes and delays training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "estimate/costs.hpp"
#include "estimate/simulate.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {

// ------------------------------------------------------------------- predict
// Predicts a step by simulating its plan with a cost table. Example: predict() of two ranks with a table
// measured on another number of threads returns step_seconds and a note that says so.

struct Prediction {
  Simulation simulation;
  bool exchanges_alone = false;    // some collective's time was measured without concurrent kernels
  std::vector<std::string> notes;  // what was not measured on this machine as it is
  // Factors within which the step's time is expected if rates replace measurements.
  std::optional<std::pair<double, double>> range = {};
  std::optional<double> host_bandwidth = {};  // bytes a second, if known
};

// `devices`: names of a rank's devices. `on_host`: see TableCostModel. Throws not_found for figures that the
// table lacks.
Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options = {},
                   Numbered<bool> on_host = {});

// ------------------------------------------------------------------- forecast

// One save, at run.save_rate.
struct SaveForecast {
  double seconds = 0;  // until all is on the disk
  // How much later the steps after it end; nothing without a prediction. Training pauses for `still` of it,
  // or at most for `still` if it goes on during the save.
  std::optional<double> delay = {};
  double still = 0;
  // True if the delay comes from drives that hold state, assuming that checkpoints go to the same drives.
  bool of_drives = false;
  std::optional<Simulation> simulation = {};
};

// Steps of one size of a growing batch.
struct RampForecast {
  BatchRamp::Stretch stretch;
  std::optional<double> step_seconds = {};
};

// Steps without ops of `periodic`. Forecast itself is the step with them, one in `period`.
struct PeriodForecast {
  std::int64_t period = 1;
  std::optional<double> between = {}, mean = {};  // seconds of such a step, and mean of all
  std::uint64_t sent = 0;                         // payload bytes, by this rank
};

// Seconds of a step that no computation hides, each for the rank with most of it.
struct Exposed {
  // The device waits for collectives, or for copies and updates elsewhere, not counting waits for drives.
  double communication = 0, transfers = 0;
  std::optional<double> drives = {};  // how much tiers lengthen the step; nothing without tiers

  friend bool operator==(const Exposed&, const Exposed&) = default;
};

struct Forecast {
  std::optional<Prediction> prediction;
  std::string missing;  // why there is no prediction, with the command that helps
  Exposed exposed = {};
  std::optional<SaveForecast> save = {};
  std::vector<RampForecast> ramp = {};  // by batch size, in order; empty without batch.ramp
  std::optional<PeriodForecast> period = {};
  // Seconds of a step in which no update is speculative; nothing where none ever is. The step itself is
  // within the limit of the norm.
  std::optional<double> waiting = {};
  // Payload bytes that this rank sends in a step, by queue, as comm plugins count them.
  std::vector<std::uint64_t> sent = {};
};

// Predicts the step only. Throws not_found if the table lacks something. `ranks_of_host` = 0: as many as the
// device has units.
Prediction predict_step(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                        std::int64_t ranks_of_host = 0);
// `table` and `ranks_of_host` are those that predicted `step`.
Exposed exposed_of(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                   const Simulation& step, std::int64_t ranks_of_host = 0);
// Returns the seconds for which the busiest rank's tiers work in a step, both directions together.
double seconds_of_drives(const Assembly& assembly, const Simulation& step);
// Returns the most bytes that such a rank sends in a step, by queue, as comm plugins count them.
std::vector<std::uint64_t> sent_of(const Assembly& assembly, PluginHost& plugins);

// Whether rates that come with prun may replace missing measurements.
enum class RatesUse : std::uint8_t { allowed, forbidden };

// `costs` names a table. Otherwise the machine's own is used, which may be missing or damaged.
Forecast forecast(const Assembly& assembly, PluginHost& plugins,
                  const std::optional<std::filesystem::path>& costs, RatesUse rates = RatesUse::allowed);

// ------------------------------------------------------------------- simulated save
// Simulates a save that runs while training continues: it reads state in order into a buffer that the disk
// empties. An update waits until what it overwrites has been read, so the read times delay calls of the
// steps. Example: a buffer of 1 GiB and 2 GiB of state on a disk of 1 GiB/s: reads of the second half proceed
// at the disk's pace.

struct SavePace {
  double written_per_second = 0;  // by the disk
  std::int64_t buffer = 0;        // bytes read ahead of the disk
};

// One read of a save.
struct SaveLoad {
  double bytes = 0;    // written for it
  double seconds = 0;  // of reading, undelayed
};

// Returns when each read is done, in seconds from the start of the save. Reads follow each other, and pause
// while the buffer is full.
std::vector<double> ends_of_reads(std::span<const SaveLoad> reads, const SavePace& pace);

}  // namespace prun
