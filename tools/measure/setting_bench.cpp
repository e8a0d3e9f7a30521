#include "measure/setting_bench.hpp"

#include <algorithm>
#include <chrono>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/median.hpp"
#include "base/text.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/number_text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

// Even a few steps then have one whose exposed communication is measured, and most have none of its cost.
constexpr const char* measured_every = "5";

std::int64_t sent_by(Trainer& trainer) {
  std::uint64_t bytes = 0;
  const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
  for (std::size_t q = 0; q < queues.size(); ++q)
    if (queues[q].communicates()) bytes += trainer.communicators()->counters(q).bytes_sent;
  return static_cast<std::int64_t>(bytes);
}

// Counts bytes beside the device's own memory: the host's, and those on drives.
std::int64_t bytes_elsewhere(const Plan& plan, bool on_drives) {
  std::int64_t bytes = 0;
  for (const Layout::Range& range : plan.layout.ranges)
    if (range.place != MemoryPlace{} && (range.place.space == Space::disk) == on_drives)
      bytes += range.bytes();
  return bytes;
}

void write_purposes(JsonWriter& json, const Plan& plan) {
  json.name("memory").begin_object();
  for (std::size_t region = 0; region < plan.layout.memory.bytes.size(); ++region)
    if (const std::int64_t bytes = plan.layout.memory.bytes[region]; bytes > 0)
      json.member(name_of(static_cast<Region>(region)), bytes);
  json.end_object();
}

// Two steps warm it up.
std::string time_steps(Trainer& trainer, std::int64_t steps) {
  for (int warm = 0; warm < 2; ++warm) trainer.step();
  const std::int64_t sent_before = sent_by(trainer);
  std::vector<double> seconds;
  double exposed = 0;
  std::int64_t measured = 0;
  Clock::time_point last = Clock::now();
  trainer.run(steps, [&](const StepResult& result) {
    const Clock::time_point now = Clock::now();
    seconds.push_back(std::chrono::duration<double>(now - std::exchange(last, now)).count());
    exposed += std::min(result.exposed_communication.value_or(0), seconds.back());
    measured += result.exposed_communication.has_value();
  });
  const auto rank = static_cast<std::size_t>(trainer.assembly().rank());
  const RankMemory memory = trainer.memory_of_ranks().at(rank);
  const bool on_device = memory.device_plan_bytes > 0;
  const MovedBytes moved = moved_bytes(trainer.assembly().program(), trainer.assembly().plan());
  JsonWriter json;
  json.begin_object()
      .member("seconds", median(seconds))
      .member("planned", on_device ? memory.device_plan_bytes + memory.device_process_bytes
                                   : memory.plan_bytes + memory.process_bytes)
      .member("in_use", on_device ? memory.device_bytes : memory.peak_bytes)
      .member("host", bytes_elsewhere(trainer.assembly().plan(), false))
      .member("moved", moved.to_host + moved.to_device)
      .member("disk", bytes_elsewhere(trainer.assembly().plan(), true))
      .member("drives_moved", moved.from_disk + moved.to_disk)
      .member("sent", (sent_by(trainer) - sent_before) / steps);
  write_purposes(json, trainer.assembly().plan());
  if (measured > 0) json.member("exposed", exposed / static_cast<double>(measured));
  return json.end_object().take();
}

SettingCost cost_of(const std::vector<std::string>& answers, std::int64_t tokens) {
  SettingCost cost;
  for (const std::string& text : answers) {
    const JsonValue rank = parse_json(text, "a rank's costs");
    cost.step_seconds = std::max(cost.step_seconds, rank.at("seconds").as_double());
    if (const std::int64_t planned = rank.at("planned").as_int64(); planned > cost.planned_bytes) {
      cost.planned_bytes = planned;
      cost.memory.clear();
      for (const JsonMember& purpose : rank.at("memory").as_object().members())
        cost.memory.emplace_back(purpose.name, purpose.value.as_int64());
    }
    cost.measured_bytes = std::max(cost.measured_bytes, rank.at("in_use").as_int64());
    cost.host_bytes = std::max(cost.host_bytes, rank.at("host").as_int64());
    cost.moved_bytes = std::max(cost.moved_bytes, rank.at("moved").as_int64());
    cost.disk_bytes = std::max(cost.disk_bytes, rank.at("disk").as_int64());
    cost.drives_moved_bytes = std::max(cost.drives_moved_bytes, rank.at("drives_moved").as_int64());
    cost.sent_bytes = std::max(cost.sent_bytes, rank.at("sent").as_int64());
    if (const JsonValue* exposed = rank.find("exposed"))
      cost.exposed_seconds = std::max(cost.exposed_seconds.value_or(0), exposed->as_double());
  }
  cost.tokens_per_second = static_cast<double>(tokens) / cost.step_seconds;
  return cost;
}

// Returns the number of the strategy within the recipe; one past the last where it has none yet.
std::size_t number_of(const Recipe& recipe, std::string_view plugin) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  const auto found = std::find_if(strategies.begin(), strategies.end(),
                                  [&](const RecipeSection& section) { return section.plugin() == plugin; });
  return static_cast<std::size_t>(found - strategies.begin());
}

std::string key_of(const Recipe& recipe, std::string_view plugin) {
  return "strategy." + std::to_string(number_of(recipe, plugin)) + ".";
}

bool is_whole_number(const std::string& text) {
  return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
}

bool are_numbers(const SettingBench& bench) {
  return std::all_of(bench.settings.list.begin(), bench.settings.list.end(),
                     [](const BenchedSetting& setting) { return is_whole_number(setting.name); });
}

// Returns the width of the table's first column.
int width_of(const SettingBench& bench) {
  std::size_t width = bench.settings.name.size() + 1;
  for (const BenchedSetting& setting : bench.settings.list) width = std::max(width, setting.name.size());
  return static_cast<int>(width);
}

}  // namespace

Recipe for_timing(const Recipe& recipe) {
  return recipe.with("run.resume", "")
      .with("run.measure_comm", measured_every)
      .with("run.check_replicas_every", "0");
}

std::string in_one_line(const std::string& text) {
  std::string line;
  for (const std::string_view part : split(text, '\n'))
    if (!part.empty() && part[0] != ' ') (line += line.empty() ? "" : " ") += part;
  return line;
}

const BenchedSetting& SettingBench::find(const std::string& setting) const {
  for (const BenchedSetting& one : settings.list)
    if (one.name == setting) return one;
  std::vector<std::string> others = settings.names();
  const std::string last = others.back();
  others.pop_back();
  throw_error(ErrorCode::bad_input, "--setting takes ", join(others, ", "), others.empty() ? "" : " or ",
              last, ", not '", setting, "'");
}

Recipe SettingBench::at(const Recipe& recipe, const std::string& setting) const {
  const std::string prefix = strategy.empty() ? "" : key_of(recipe, strategy);
  Recipe set = for_timing(recipe);
  if (!strategy.empty()) set = set.with(prefix + "plugin", strategy);
  for (const auto& [key, value] : find(setting).values) set = set.with(prefix + key, value);
  return set;
}

SettingBench bench_of(const PluginNote& strategy) {
  const auto works = [&](Phase phase) { return works_in(phase, strategy); };
  return {strategy.name, benched_settings(strategy), works(Phase::memory),
          works(Phase::shard) || works(Phase::partition) || works(Phase::state)};
}

SettingBench bench_of(const std::string& key, const std::string& values) {
  SettingBench bench;
  bench.settings.name = "setting";
  bench.moves = true;
  for (const std::string_view value : split(values, ','))
    bench.settings.list.push_back({std::string(trim(value)), {{key, std::string(trim(value))}}});
  return bench;
}

MakeQuestion how_a_setting_does(std::int64_t steps) {
  return [steps](LocalPlace) {
    return Question{[steps](Trainer& trainer) { return time_steps(trainer, steps); }, {}};
  };
}

SettingResult time_recipe(const Recipe& recipe, PluginHost& plugins, const std::string& name,
                          const std::vector<std::string>& command) {
  const std::int64_t tokens = recipe.integer("batch.global") * recipe.integer("model.seq");
  return {name, cost_of(ask_processes(recipe, plugins, command), tokens), ""};
}

SettingResult time_setting(const SettingBench& bench, const Recipe& recipe, PluginHost& plugins,
                           const std::string& setting, const std::vector<std::string>& command) {
  try {
    return time_recipe(bench.at(recipe, setting), plugins, setting, command);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::bad_input) throw;
    return {setting, std::nullopt, in_one_line(error.what())};
  }
}

void compare_with_first(const SettingBench& bench, std::vector<SettingResult>& results) {
  if (!bench.moves || results.empty() || results.front().setting != bench.settings.list.front().name) return;
  const std::optional<SettingCost> first = results.front().cost;
  for (SettingResult& result : results)
    if (first && result.cost)
      result.cost->beyond_first_seconds = result.cost->step_seconds - first->step_seconds;
}

std::string header_of(const SettingBench& bench) {
  const std::string of_first = "of " + bench.settings.list.front().name;
  const std::string elsewhere =
      bench.moves ? format("%12s %12s %12s %12s ", "host", "host copies", "drives", "drive copies") : "";
  return format("%-*s %12s %12s %8s %12s %12s %s%12s %19s\n", width_of(bench), bench.settings.name.c_str(),
                "step", "tokens/s", of_first.c_str(), "planned", "in use", elsewhere.c_str(), "sent a step",
                "exposed comm");
}

std::string line_of(const SettingBench& bench, const SettingResult& result, const SettingResult& first) {
  if (!result.cost)
    return format("%-*s refused: ", width_of(bench), result.setting.c_str()) + in_one_line(result.refused) +
           "\n";
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  const SettingCost& cost = *result.cost;
  const bool comparable = first.setting == bench.settings.list.front().name && first.cost;
  const std::string of_first =
                        comparable ? format("%.2f", cost.step_seconds / first.cost->step_seconds) : "-",
                    in_use = cost.measured_bytes > 0 ? size(cost.measured_bytes) : "-",
                    exposed = cost.exposed_seconds
                                  ? time_text(*cost.exposed_seconds) +
                                        format(" %5.1f%%", *cost.exposed_seconds / cost.step_seconds * 100)
                                  : "-",
                    elsewhere = bench.moves
                                    ? format("%12s %12s %12s %12s ", size(cost.host_bytes).c_str(),
                                             size(cost.moved_bytes).c_str(), size(cost.disk_bytes).c_str(),
                                             size(cost.drives_moved_bytes).c_str())
                                    : "";
  return format("%-*s %12s %12s %8s %12s %12s %s%12s %19s\n", width_of(bench), result.setting.c_str(),
                time_text(cost.step_seconds).c_str(), rate_text(cost.tokens_per_second).c_str(),
                of_first.c_str(), size(cost.planned_bytes).c_str(), in_use.c_str(), elsewhere.c_str(),
                size(cost.sent_bytes).c_str(), exposed.c_str());
}

std::string json_of(const SettingBench& bench, const Recipe& recipe,
                    const std::vector<SettingResult>& results) {
  JsonWriter json;
  json.begin_object()
      .member("made_by", "prun bench")
      .member("recipe", recipe.text("run.name"))
      .name(bench.settings.name + "s")
      .begin_array();
  for (const SettingResult& result : results) {
    json.begin_object();
    if (are_numbers(bench))
      json.member(bench.settings.name, static_cast<std::int64_t>(std::stoll(result.setting)));
    else
      json.member(bench.settings.name, result.setting);
    if (result.cost) {
      json.member("step_seconds", result.cost->step_seconds)
          .member("tokens_per_second", result.cost->tokens_per_second)
          .member("planned_bytes", result.cost->planned_bytes)
          .member("measured_bytes", result.cost->measured_bytes)
          .member("sent_bytes", result.cost->sent_bytes);
      write_memory(json, *result.cost);
      if (bench.moves)
        json.member("host_bytes", result.cost->host_bytes)
            .member("moved_bytes", result.cost->moved_bytes)
            .member("disk_bytes", result.cost->disk_bytes)
            .member("drives_moved_bytes", result.cost->drives_moved_bytes);
      if (result.cost->beyond_first_seconds)
        json.member("beyond_first_seconds", *result.cost->beyond_first_seconds);
      if (result.cost->exposed_seconds) json.member("exposed_seconds", *result.cost->exposed_seconds);
    } else {
      json.member("refused", result.refused);
    }
    json.end_object();
  }
  return json.end_array().end_object().take();
}

void write_memory(JsonWriter& json, const SettingCost& cost) {
  json.name("memory").begin_object();
  for (const auto& [purpose, bytes] : cost.memory) json.member(purpose, bytes);
  json.end_object();
}

constexpr const char* markdown_mark = "<!-- written by prun bench -->";

std::string markdown_of(const SettingBench& bench, const std::vector<SettingResult>& results) {
  const std::vector<std::string> heads = {bench.settings.name, "a step",      "tokens/s", "planned", "in use",
                                          "sent a step",       "exposed comm"};
  const auto line = [](const std::vector<std::string>& cells) { return "| " + join(cells, " | ") + " |\n"; };
  std::string text =
      std::string(markdown_mark) + "\n" + line(heads) + line(std::vector<std::string>(heads.size(), "---"));
  for (const SettingResult& result : results) {
    std::vector<std::string> cells = {result.setting};
    if (const std::optional<SettingCost>& cost = result.cost)
      cells.insert(
          cells.end(),
          {time_text(cost->step_seconds), rate_text(cost->tokens_per_second), size_text(cost->planned_bytes),
           cost->measured_bytes > 0 ? size_text(cost->measured_bytes) : "-", size_text(cost->sent_bytes),
           cost->exposed_seconds ? format("%.1f %%", *cost->exposed_seconds / cost->step_seconds * 100)
                                 : "-"});
    else
      cells.push_back("refused: " + in_one_line(result.refused));
    cells.resize(heads.size());
    text += line(cells);
  }
  return text;
}

OutputKind results_kind(const SettingBench& bench, const std::filesystem::path& file) {
  if (file.extension() == ".md") return {"results of prun bench", markdown_mark};
  return {"results of prun bench", file.extension() == ".csv"
                                       ? bench.settings.name + ",step_seconds,tokens_per_second,"
                                       : std::string(R"({"made_by":"prun bench")")};
}

std::string csv_of(const SettingBench& bench, const std::vector<SettingResult>& results) {
  std::string text =
      bench.settings.name +
      ",step_seconds,tokens_per_second,planned_bytes,measured_bytes,sent_bytes,"
      "exposed_seconds" +
      (bench.moves ? ",host_bytes,moved_bytes,disk_bytes,drives_moved_bytes,beyond_first_seconds\n" : "\n");
  const auto seconds = [](const std::optional<double>& number) {
    return number ? format("%.9g", *number) : std::string();
  };
  const auto whole = [](std::int64_t number) { return std::to_string(number); };
  for (const SettingResult& result : results)
    if (const std::optional<SettingCost>& cost = result.cost)
      text += result.setting + format(",%.9g,%.9g,", cost->step_seconds, cost->tokens_per_second) +
              whole(cost->planned_bytes) + "," + whole(cost->measured_bytes) + "," + whole(cost->sent_bytes) +
              "," + seconds(cost->exposed_seconds) +
              (bench.moves ? "," + whole(cost->host_bytes) + "," + whole(cost->moved_bytes) + "," +
                                 whole(cost->disk_bytes) + "," + whole(cost->drives_moved_bytes) + "," +
                                 seconds(cost->beyond_first_seconds)
                           : "") +
              "\n";
    else
      text += result.setting + (bench.moves ? ",,,,,,,,,,,\n" : ",,,,,,\n");
  return text;
}

}  // namespace prun
