#include "measure/zero_bench.hpp"

#include <algorithm>
#include <chrono>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

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
  JsonWriter json;
  json.begin_object()
      .member("seconds", median(seconds))
      .member("planned", on_device ? memory.device_plan_bytes + memory.device_process_bytes
                                   : memory.plan_bytes + memory.process_bytes)
      .member("in_use", on_device ? memory.device_bytes : memory.peak_bytes)
      .member("sent", (sent_by(trainer) - sent_before) / steps);
  if (measured > 0) json.member("exposed", exposed / static_cast<double>(measured));
  return json.end_object().take();
}

StageCost cost_of(const std::vector<std::string>& answers, std::int64_t tokens) {
  StageCost cost;
  for (const std::string& text : answers) {
    const JsonValue rank = parse_json(text, "a rank's costs");
    cost.step_seconds = std::max(cost.step_seconds, rank.at("seconds").as_double());
    cost.planned_bytes = std::max(cost.planned_bytes, rank.at("planned").as_int64());
    cost.measured_bytes = std::max(cost.measured_bytes, rank.at("in_use").as_int64());
    cost.sent_bytes = std::max(cost.sent_bytes, rank.at("sent").as_int64());
    if (const JsonValue* exposed = rank.find("exposed"))
      cost.exposed_seconds = std::max(cost.exposed_seconds.value_or(0), exposed->as_double());
  }
  cost.tokens_per_second = static_cast<double>(tokens) / cost.step_seconds;
  return cost;
}

// The number of the strategy within the recipe; one behind the last where it has none yet.
std::size_t number_of_zero(const Recipe& recipe) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  const auto found = std::find_if(strategies.begin(), strategies.end(),
                                  [](const RecipeSection& section) { return section.plugin() == "zero"; });
  return static_cast<std::size_t>(found - strategies.begin());
}

// Without the lines that point into the recipe.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (const std::string_view part : split(text, '\n'))
    if (!part.empty() && part[0] != ' ') (line += line.empty() ? "" : " ") += part;
  return line;
}

}  // namespace

Recipe at_zero_stage(const Recipe& recipe, std::int64_t stage) {
  const std::string key = "strategy." + std::to_string(number_of_zero(recipe)) + ".";
  // The other way of reducing is one of stage 3 alone.
  const std::string reduce =
      stage == 3 && recipe.find(key + "reduce") ? recipe.text(key + "reduce") : "microbatch";
  return recipe.with("run.resume", "")
      .with("run.measure_comm", measured_every)
      .with("run.compare_every", "0")
      .with(key + "plugin", "zero")
      .with(key + "reduce", reduce)
      .with(key + "stage", std::to_string(stage));
}

MakeQuestion how_a_stage_does(std::int64_t steps) {
  return [steps](LocalPlace) {
    return Question{[steps](Trainer& trainer) { return time_steps(trainer, steps); }, {}};
  };
}

StageResult time_zero_stage(const Recipe& recipe, PluginHost& plugins, std::int64_t stage,
                            const std::vector<std::string>& command) {
  const Recipe staged = at_zero_stage(recipe, stage);
  const std::int64_t tokens = staged.integer("batch.global") * staged.integer("model.seq");
  try {
    const std::vector<std::string> answers = ask_processes(staged, plugins, command);
    return {stage, cost_of(answers, tokens), ""};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::bad_input) throw;
    return {stage, std::nullopt, error.what()};
  }
}

std::string zero_header() {
  return format("%-6s %12s %12s %8s %12s %12s %12s %16s\n", "stage", "step", "tokens/s", "of 0", "planned",
                "in use", "sent a step", "exposed comm");
}

std::string zero_line(const StageResult& result, const StageResult& first) {
  if (!result.cost)
    return format("%-6lld refused: ", static_cast<long long>(result.stage)) + in_one_line(result.refused) +
           "\n";
  const StageCost& cost = *result.cost;
  const bool comparable = first.stage == 0 && first.cost;
  const std::string exposed = cost.exposed_seconds ? format("%.3f ms %5.1f%%", *cost.exposed_seconds * 1e3,
                                                            *cost.exposed_seconds / cost.step_seconds * 100)
                                                   : "-";
  return format("%-6lld %9.3f ms %12.0f %8s %12s %12s %12s %16s\n", static_cast<long long>(result.stage),
                cost.step_seconds * 1e3, cost.tokens_per_second,
                comparable ? format("%.2f", cost.step_seconds / first.cost->step_seconds).c_str() : "-",
                size_text(static_cast<double>(cost.planned_bytes)).c_str(),
                cost.measured_bytes > 0 ? size_text(static_cast<double>(cost.measured_bytes)).c_str() : "-",
                size_text(static_cast<double>(cost.sent_bytes)).c_str(), exposed.c_str());
}

std::string zero_json(const Recipe& recipe, const std::vector<StageResult>& results) {
  JsonWriter json;
  json.begin_object().member("recipe", recipe.text("run.name")).name("stages").begin_array();
  for (const StageResult& result : results) {
    json.begin_object().member("stage", result.stage);
    if (result.cost) {
      json.member("step_seconds", result.cost->step_seconds)
          .member("tokens_per_second", result.cost->tokens_per_second)
          .member("planned_bytes", result.cost->planned_bytes)
          .member("measured_bytes", result.cost->measured_bytes)
          .member("sent_bytes", result.cost->sent_bytes);
      if (result.cost->exposed_seconds) json.member("exposed_seconds", *result.cost->exposed_seconds);
    } else {
      json.member("refused", result.refused);
    }
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::string zero_csv(const std::vector<StageResult>& results) {
  std::string text =
      "stage,step_seconds,tokens_per_second,planned_bytes,measured_bytes,sent_bytes,exposed_seconds\n";
  for (const StageResult& result : results)
    if (const std::optional<StageCost>& cost = result.cost)
      text += format("%lld,%.9g,%.9g,%lld,%lld,%lld,", static_cast<long long>(result.stage),
                     cost->step_seconds, cost->tokens_per_second, static_cast<long long>(cost->planned_bytes),
                     static_cast<long long>(cost->measured_bytes), static_cast<long long>(cost->sent_bytes)) +
              (cost->exposed_seconds ? format("%.9g", *cost->exposed_seconds) : "") + "\n";
    else
      text += format("%lld,,,,,,\n", static_cast<long long>(result.stage));
  return text;
}

}  // namespace prun
