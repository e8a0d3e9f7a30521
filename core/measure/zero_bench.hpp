// Stages 0 to 3 of the strategy `zero` on one recipe, measured beside each other: what each stage costs in
// time and traffic, and what it saves.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "train/rank_answers.hpp"

namespace prun {

inline constexpr std::array<std::int64_t, 4> zero_stages = {0, 1, 2, 3};

// Seconds and bytes of the rank that has most of them.
struct StageCost {
  double step_seconds = 0;  // the median
  double tokens_per_second = 0;
  std::int64_t planned_bytes = 0;         // what the rank was said to need, in the device's memory
  std::int64_t measured_bytes = 0;        // 0: nobody knows
  std::int64_t sent_bytes = 0;            // a step, as the comm plugins count
  std::optional<double> exposed_seconds;  // communication, on average; nothing where no step was measured
};

struct StageResult {
  std::int64_t stage = 0;
  std::optional<StageCost> cost;
  std::string refused;  // why there is none: it does not fit, say
};

// The recipe at that stage, its other strategies as they are.
Recipe at_zero_stage(const Recipe& recipe, std::int64_t stage);

// What each rank is asked: see answer().
MakeQuestion how_a_stage_does(std::int64_t steps);

// Runs the ranks as training does, a process each. `command`: as for ask_ranks(); it is to come to answer()
// with the recipe at that stage.
StageResult time_zero_stage(const Recipe& recipe, PluginHost& plugins, std::int64_t stage,
                            const std::vector<std::string>& command);

// A table: its head, and a line of it beside the `first`. The same as JSON, and as CSV.
std::string zero_header();
std::string zero_line(const StageResult& result, const StageResult& first);
std::string zero_json(const Recipe& recipe, const std::vector<StageResult>& results);
std::string zero_csv(const std::vector<StageResult>& results);

}  // namespace prun
