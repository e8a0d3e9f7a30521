// Measures one strategy of a recipe at several settings: what each costs in time and traffic, and what it
// saves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/output_file.hpp"
#include "plugin/benched.hpp"
#include "train/loop/rank_answers.hpp"

namespace prun {

struct SettingBench {
  std::string strategy;      // the plugin; empty: the recipe's keys
  BenchedSettings settings;  // the others are compared with the first
  bool moves = false;        // whether it has to do with the host's memory
  bool divides = false;      // whether it does nothing to a rank that is alone

  // Throws bad_input where there is none of that name.
  const BenchedSetting& find(const std::string& setting) const;
  // Returns the recipe at one of them, with its other strategies as they are.
  Recipe at(const Recipe& recipe, const std::string& setting) const;
};
// Returns what a strategy's note lists.
SettingBench bench_of(const PluginNote& strategy);
// Returns a key of the recipe at each of the values, which have commas between.
SettingBench bench_of(const std::string& key, const std::string& values);

// States seconds and bytes of the rank that has most of them.
struct SettingCost {
  double step_seconds = 0;  // the median
  double tokens_per_second = 0;
  std::int64_t planned_bytes = 0;         // what the rank was said to need, in the device's memory
  std::int64_t measured_bytes = 0;        // 0: nobody knows
  std::int64_t host_bytes = 0;            // of the plan, beside the device's own memory
  std::int64_t moved_bytes = 0;           // a step, between the two, both ways
  std::int64_t disk_bytes = 0;            // of the plan, on drives
  std::int64_t drives_moved_bytes = 0;    // a step, from and to them
  std::int64_t sent_bytes = 0;            // a step, as the comm plugins count
  std::optional<double> exposed_seconds;  // communication, on average; nothing where no step was measured
  // A step takes so much more than with nothing elsewhere, where that ran: transfers and updates that nothing
  // hid.
  std::optional<double> beyond_first_seconds;
};

struct SettingResult {
  std::string setting;
  std::optional<SettingCost> cost;
  std::string refused;  // why there is none: it does not fit, say
};

// Makes what each rank is asked: see answer().
MakeQuestion how_a_setting_does(std::int64_t steps);

// Runs the ranks as training does, a process each. `command`: as for ask_ranks(); it is to come to answer()
// with the recipe at that setting.
SettingResult time_setting(const SettingBench& bench, const Recipe& recipe, PluginHost& plugins,
                           const std::string& setting, const std::vector<std::string>& command);
// Sets beyond_first_seconds of each that stands beside the bench's first.
void compare_with_first(const SettingBench& bench, std::vector<SettingResult>& results);

// These write a table: its head, and a line of it beside the `first`; and the same as JSON, and as CSV.
std::string header_of(const SettingBench& bench);
std::string line_of(const SettingBench& bench, const SettingResult& result, const SettingResult& first);
std::string json_of(const SettingBench& bench, const Recipe& recipe,
                    const std::vector<SettingResult>& results);
std::string csv_of(const SettingBench& bench, const std::vector<SettingResult>& results);
// Returns one of the two kinds, by how the file's name ends.
OutputKind results_kind(const SettingBench& bench, const std::filesystem::path& file);

}  // namespace prun
