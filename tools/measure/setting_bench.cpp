#include "measure/setting_bench.hpp"

#include <algorithm>
#include <chrono>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "plan/moved_bytes.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

// So that even few steps have one whose exposed communication is measured, and most have none of its cost.
constexpr const char* measured_every = "5";

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}

std::int64_t sent_by(Trainer& trainer) {
  std::uint64_t bytes = 0;
  const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
  for (std::size_t q = 0; q < queues.size(); ++q)
    if (queues[q].communicates()) bytes += trainer.communicators()->counters(q).bytes_sent;
  return static_cast<std::int64_t>(bytes);
}

// Beside the device's own memory: the host's, and that on drives.
std::int64_t bytes_elsewhere(const Plan& plan, bool on_drives) {
  std::int64_t bytes = 0;
  for (const Layout::Range& range : plan.layout.ranges)
    if (range.place != MemoryPlace{} && (range.place.space == Space::disk) == on_drives)
      bytes += range.bytes();
  return bytes;
}

// Two steps to warm up.
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
    exposed += result.exposed_communication.value_or(0);
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
  if (measured > 0) json.member("exposed", exposed / static_cast<double>(measured));
  return json.end_object().take();
}

SettingCost cost_of(const std::vector<std::string>& answers, std::int64_t tokens) {
  SettingCost cost;
  for (const std::string& text : answers) {
    const JsonValue rank = parse_json(text, "a rank's costs");
    cost.step_seconds = std::max(cost.step_seconds, rank.at("seconds").as_double());
    cost.planned_bytes = std::max(cost.planned_bytes, rank.at("planned").as_int64());
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

// The number of the strategy within the recipe; one behind the last where it has none yet.
std::size_t number_of(const Recipe& recipe, std::string_view plugin) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  const auto found = std::find_if(strategies.begin(), strategies.end(),
                                  [&](const RecipeSection& section) { return section.plugin() == plugin; });
  return static_cast<std::size_t>(found - strategies.begin());
}

std::string key_of(const Recipe& recipe, std::string_view plugin) {
  return "strategy." + std::to_string(number_of(recipe, plugin)) + ".";
}

Recipe for_timing(const Recipe& recipe) {
  return recipe.with("run.resume", "")
      .with("run.measure_comm", measured_every)
      .with("run.compare_every", "0");
}

Recipe at_zero_stage(const Recipe& recipe, const std::string& stage) {
  const std::string key = key_of(recipe, "zero");
  // The other way of reducing is one of stage 3 alone.
  const std::string reduce =
      stage == "3" && recipe.find(key + "reduce") ? recipe.text(key + "reduce") : "microbatch";
  return for_timing(recipe)
      .with(key + "plugin", "zero")
      .with(key + "reduce", reduce)
      .with(key + "stage", stage);
}

Recipe at_offload(const Recipe& recipe, const std::string& setting) {
  const std::string key = key_of(recipe, "offload");
  const std::string tier = setting.starts_with("nvme") ? "nvme" : "host";
  Recipe set = for_timing(recipe)
                   .with(key + "plugin", "offload")
                   .with(key + "mode", "each")
                   .with(key + "update", "host")
                   .with(key + "optimizer", setting == "none" ? "device" : tier);
  for (const char* what : {"parameters", "gradients", "activations"})
    set = set.with(key + what, setting.ends_with("all") ? tier : "device");
  return set;
}

// Without the lines that point into the recipe.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (const std::string_view part : split(text, '\n'))
    if (!part.empty() && part[0] != ' ') (line += line.empty() ? "" : " ") += part;
  return line;
}

}  // namespace

const SettingBench& zero_bench() {
  static const SettingBench bench{"stage", {"0", "1", "2", "3"}, true, false, 6, at_zero_stage};
  return bench;
}

const SettingBench& offload_bench() {
  static const SettingBench bench{
      "setting", {"none", "optimizer", "all", "nvme-optimizer", "nvme-all"}, false, true, 14, at_offload};
  return bench;
}

MakeQuestion how_a_setting_does(std::int64_t steps) {
  return [steps](LocalPlace) {
    return Question{[steps](Trainer& trainer) { return time_steps(trainer, steps); }, {}};
  };
}

SettingResult time_setting(const SettingBench& bench, const Recipe& recipe, PluginHost& plugins,
                           const std::string& setting, const std::vector<std::string>& command) {
  const std::int64_t tokens = recipe.integer("batch.global") * recipe.integer("model.seq");
  try {
    return {setting, cost_of(ask_processes(bench.at(recipe, setting), plugins, command), tokens), ""};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::bad_input) throw;
    return {setting, std::nullopt, error.what()};
  }
}

void compare_with_first(const SettingBench& bench, std::vector<SettingResult>& results) {
  if (!bench.moves || results.empty() || results.front().setting != bench.settings.front()) return;
  const std::optional<SettingCost> first = results.front().cost;
  for (SettingResult& result : results)
    if (first && result.cost)
      result.cost->beyond_first_seconds = result.cost->step_seconds - first->step_seconds;
}

std::string header_of(const SettingBench& bench) {
  const std::string of_first = "of " + bench.settings.front();
  const std::string elsewhere =
      bench.moves ? format("%12s %12s %12s %12s ", "host", "moved a step", "drives", "moved a step") : "";
  return format("%-*s %12s %12s %8s %12s %12s %s%12s %16s\n", bench.width, bench.name, "step", "tokens/s",
                of_first.c_str(), "planned", "in use", elsewhere.c_str(), "sent a step", "exposed comm");
}

std::string line_of(const SettingBench& bench, const SettingResult& result, const SettingResult& first) {
  if (!result.cost)
    return format("%-*s refused: ", bench.width, result.setting.c_str()) + in_one_line(result.refused) + "\n";
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const SettingCost& cost = *result.cost;
  const bool comparable = first.setting == bench.settings.front() && first.cost;
  const std::string of_first =
                        comparable ? format("%.2f", cost.step_seconds / first.cost->step_seconds) : "-",
                    in_use = cost.measured_bytes > 0 ? size(cost.measured_bytes) : "-",
                    exposed = cost.exposed_seconds ? format("%.3f ms %5.1f%%", *cost.exposed_seconds * 1e3,
                                                            *cost.exposed_seconds / cost.step_seconds * 100)
                                                   : "-",
                    elsewhere = bench.moves
                                    ? format("%12s %12s %12s %12s ", size(cost.host_bytes).c_str(),
                                             size(cost.moved_bytes).c_str(), size(cost.disk_bytes).c_str(),
                                             size(cost.drives_moved_bytes).c_str())
                                    : "";
  return format("%-*s %9.3f ms %12.0f %8s %12s %12s %s%12s %16s\n", bench.width, result.setting.c_str(),
                cost.step_seconds * 1e3, cost.tokens_per_second, of_first.c_str(),
                size(cost.planned_bytes).c_str(), in_use.c_str(), elsewhere.c_str(),
                size(cost.sent_bytes).c_str(), exposed.c_str());
}

std::string json_of(const SettingBench& bench, const Recipe& recipe,
                    const std::vector<SettingResult>& results) {
  JsonWriter json;
  json.begin_object()
      .member("made_by", "prun bench")
      .member("recipe", recipe.text("run.name"))
      .name(std::string(bench.name) + "s")
      .begin_array();
  for (const SettingResult& result : results) {
    json.begin_object();
    if (bench.numbered)
      json.member(bench.name, static_cast<std::int64_t>(std::stoll(result.setting)));
    else
      json.member(bench.name, result.setting);
    if (result.cost) {
      json.member("step_seconds", result.cost->step_seconds)
          .member("tokens_per_second", result.cost->tokens_per_second)
          .member("planned_bytes", result.cost->planned_bytes)
          .member("measured_bytes", result.cost->measured_bytes)
          .member("sent_bytes", result.cost->sent_bytes);
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

OutputKind results_kind(const SettingBench& bench, const std::filesystem::path& file) {
  return {"results of prun bench", file.extension() == ".csv"
                                       ? std::string(bench.name) + ",step_seconds,tokens_per_second,"
                                       : std::string(R"({"made_by":"prun bench")")};
}

std::string csv_of(const SettingBench& bench, const std::vector<SettingResult>& results) {
  std::string text =
      std::string(bench.name) +
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
