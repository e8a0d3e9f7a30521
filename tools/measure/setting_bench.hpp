// Measures one strategy of a recipe at several settings: each one's cost in time and traffic, and what it
// saves.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/whole_file.hpp"
#include "cli/benched.hpp"
#include "ranks/rank_answers.hpp"

namespace prun {

// ------------------------------------------------------------------- setting bench

struct SettingBench {
  std::string strategy;      // the plugin; empty: the recipe's keys
  BenchedSettings settings;  // the others are compared with the first
  bool moves = false;        // says whether it uses the host's memory
  bool divides = false;      // says whether it does nothing to a rank that is alone

  // Throws bad_input where there is no setting of that name.
  const BenchedSetting& find(const std::string& setting) const;
  // Returns the recipe at one setting, with its other strategies as they are.
  Recipe at(const Recipe& recipe, const std::string& setting) const;
};
// Returns the settings that a strategy's note lists.
SettingBench bench_of(const PluginNote& strategy);
// Returns a key of the recipe at each of the values, which have commas between.
SettingBench bench_of(const std::string& key, const std::string& values);

// States seconds and bytes of the rank that has most of them.
struct SettingCost {
  double step_seconds = 0;  // the median
  double tokens_per_second = 0;
  std::int64_t planned_bytes = 0;         // is what the plan said the rank needs, in the device's memory
  std::int64_t measured_bytes = 0;        // 0: not known
  std::int64_t host_bytes = 0;            // counts those of the plan, beside the device's own memory
  std::int64_t moved_bytes = 0;           // counts those of a step, between the two, both ways
  std::int64_t disk_bytes = 0;            // counts those of the plan, on drives
  std::int64_t drives_moved_bytes = 0;    // counts those of a step, from and to drives
  std::int64_t sent_bytes = 0;            // counts those of a step, as the comm plugins do
  std::optional<double> exposed_seconds;  // is communication, on average; nothing where no step was measured
  std::vector<std::pair<std::string, std::int64_t>>
      memory;  // the plan's bytes by purpose, of the fullest rank
  // A step takes so much more than with nothing elsewhere, where that was measured: transfers and updates
  // that nothing hid.
  std::optional<double> beyond_first_seconds;
};

struct SettingResult {
  std::string setting;
  std::optional<SettingCost> cost;
  std::string refused;  // says why there is no cost: it does not fit, say
};

// Makes the question for each rank: see answer().
MakeQuestion how_a_setting_does(std::int64_t steps);

// Returns a recipe as it is timed: from its beginning, with nothing compared.
Recipe for_timing(const Recipe& recipe);
// Returns a message without the lines that point into the recipe, and without ends of lines.
std::string in_one_line(const std::string& text);

// Runs the ranks of a recipe as training does, a process each. `command` is as for ask_ranks().
SettingResult time_recipe(const Recipe& recipe, PluginHost& plugins, const std::string& name,
                          const std::vector<std::string>& command);

// Runs the ranks as training does, a process each. `command` is as for ask_ranks(); it must come to answer()
// with the recipe at that setting.
SettingResult time_setting(const SettingBench& bench, const Recipe& recipe, PluginHost& plugins,
                           const std::string& setting, const std::vector<std::string>& command);
// Sets beyond_first_seconds of each result that stands beside the bench's first.
void compare_with_first(const SettingBench& bench, std::vector<SettingResult>& results);

// These write a table: its head, and a line of it beside the `first`; and the same as JSON, CSV and Markdown.
std::string header_of(const SettingBench& bench);
std::string line_of(const SettingBench& bench, const SettingResult& result, const SettingResult& first);
std::string json_of(const SettingBench& bench, const Recipe& recipe,
                    const std::vector<SettingResult>& results);
std::string csv_of(const SettingBench& bench, const std::vector<SettingResult>& results);
std::string markdown_of(const SettingBench& bench, const std::vector<SettingResult>& results);
// Adds a member "memory": the plan's bytes by purpose.
void write_memory(JsonWriter& json, const SettingCost& cost);
// Returns one of the three kinds, by the ending of the file's name.
OutputKind results_kind(const SettingBench& bench, const std::filesystem::path& file);

// ------------------------------------------------------------------- recipes bench
// Compares recipes: trains each of them, at each of some sizes, in turns, and makes one table of the results.

// Describes one of the values of --each: settings over each recipe.
struct BenchedSize {
  std::string name;               // "model.layers=12"; empty where there is only one size
  std::vector<std::string> sets;  // as --set takes them
};
// Parses "KEY=V1,V2", or of several keys that vary together "KEY+KEY=V1+W1,V2+W2". Throws bad_input.
std::vector<BenchedSize> sizes_of(const std::string& each);

// Describes a recipe at a size.
struct RecipeFacts {
  std::string file, size, model, layout, device;
  std::int64_t ranks = 0, parameters = 0, global = 0, micro = 0, seq = 0;

  std::int64_t tokens() const { return global * seq; }
};
RecipeFacts facts_of(const std::string& file, const std::string& size, const Assembly& assembly);

// Holds the results of the rounds of one recipe at one size.
struct RecipeRow {
  RecipeFacts facts;
  std::vector<SettingCost> rounds;
  std::string refused;  // one line that says why there are none

  // Returns the middle of the rounds by the time of a step.
  const SettingCost& cost() const;
  // Returns how far the times of rounds lie apart, as a share of the middle one.
  double spread() const;
};

// Describes how the table was made.
struct Provenance {
  std::string command, date, version, machine;
  std::int64_t steps = 0, rounds = 0;
};

// These write the table: as text, as Markdown, as JSON and as CSV. The first recipe at the same size is what
// others are compared with.
std::string recipes_text(const std::vector<RecipeRow>& rows);
std::string recipes_markdown(const std::vector<RecipeRow>& rows, const Provenance& made);
std::string recipes_json(const std::vector<RecipeRow>& rows, const Provenance& made);
std::string recipes_csv(const std::vector<RecipeRow>& rows);

}  // namespace prun
