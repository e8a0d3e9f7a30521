#include "measure/setting_bench.hpp"

#include <algorithm>
#include <chrono>

#include "base/json.hpp"
#include "base/narrow.hpp"
#include "base/text.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/number_text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- setting bench

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

namespace {

// ------------------------------------------------------------------- recipes bench

using Cells = std::vector<std::string>;

const Cells heads = {"recipe", "size",    "ranks",  "a step",      "spread",      "tokens/s",
                     "speed",  "planned", "in use", "sent a step", "exposed comm"};

// Returns the row of the first recipe at the same size, where that has times.
const RecipeRow* first_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const RecipeRow& one) { return one.facts.size == row.facts.size; });
  return found == rows.end() || found->rounds.empty() ? nullptr : &*found;
}

// Returns how many times as many tokens a second the row has as the first recipe of its size.
std::optional<double> speed_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const RecipeRow* const first = first_of(rows, row);
  if (!first) return {};
  return row.cost().tokens_per_second / first->cost().tokens_per_second;
}

std::string exposed_text(const SettingCost& cost) {
  return cost.exposed_seconds ? format("%.1f %%", 100 * *cost.exposed_seconds / cost.step_seconds) : "-";
}

Cells cells_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  Cells cells = {row.facts.file, row.facts.size.empty() ? "-" : row.facts.size,
                 row.facts.ranks > 0 ? std::to_string(row.facts.ranks) : "-"};
  if (row.rounds.empty()) {
    cells.push_back("refused: " + row.refused);
    return cells;
  }
  const SettingCost& cost = row.cost();
  const std::optional<double> speed = speed_of(rows, row);
  cells.push_back(time_text(cost.step_seconds));
  cells.push_back(format("%.1f %%", 100 * row.spread()));
  cells.push_back(rate_text(cost.tokens_per_second));
  cells.push_back(speed ? format("%.2f", *speed) : "-");
  cells.push_back(size_text(cost.planned_bytes));
  cells.push_back(cost.measured_bytes > 0 ? size_text(cost.measured_bytes) : "-");
  cells.push_back(size_text(cost.sent_bytes));
  cells.push_back(exposed_text(cost));
  return cells;
}

void write_row(JsonWriter& json, const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const RecipeFacts& facts = row.facts;
  json.begin_object().member("recipe", facts.file).member("size", facts.size).member("model", facts.model);
  json.member("layout", facts.layout).member("device", facts.device).member("ranks", facts.ranks);
  json.member("parameters", facts.parameters).member("global", facts.global).member("micro", facts.micro);
  json.member("seq", facts.seq).member("tokens", facts.tokens());
  if (row.rounds.empty()) {
    json.member("refused", row.refused).end_object();
    return;
  }
  const SettingCost& cost = row.cost();
  json.member("step_seconds", cost.step_seconds).member("tokens_per_second", cost.tokens_per_second);
  json.member("spread", row.spread()).member("planned_bytes", cost.planned_bytes);
  json.member("measured_bytes", cost.measured_bytes).member("sent_bytes", cost.sent_bytes);
  json.member("host_bytes", cost.host_bytes).member("disk_bytes", cost.disk_bytes);
  write_memory(json, cost);
  if (cost.exposed_seconds) json.member("exposed_seconds", *cost.exposed_seconds);
  if (const auto speed = speed_of(rows, row)) json.member("speed", *speed);
  json.name("round_step_seconds").begin_array();
  for (const SettingCost& round : row.rounds) json.value(round.step_seconds);
  json.end_array().end_object();
}

[[noreturn]] void refuse_each(const std::string& each) {
  throw_error(ErrorCode::bad_input,
              "--each takes KEY=V1,V2, or KEY+KEY=V1+W1,V2+W2 of keys that vary together, not ",
              in_quotes(each));
}

}  // namespace

std::vector<BenchedSize> sizes_of(const std::string& each) {
  const std::size_t equals = each.find('=');
  if (equals == std::string::npos || equals == 0) refuse_each(each);
  const std::vector<std::string_view> keys = split(std::string_view(each).substr(0, equals), '+');
  std::vector<BenchedSize> sizes;
  for (const std::string_view values : split(std::string_view(each).substr(equals + 1), ',')) {
    const std::vector<std::string_view> parts = split(values, '+');
    if (parts.size() != keys.size()) refuse_each(each);
    BenchedSize& size = sizes.emplace_back();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (trim(parts[i]).empty()) refuse_each(each);
      size.sets.push_back(detail::concat(trim(keys[i]), "=", trim(parts[i])));
    }
    size.name = join(size.sets, " ");
  }
  return sizes;
}

RecipeFacts facts_of(const std::string& file, const std::string& size, const Assembly& assembly) {
  const Recipe& recipe = assembly.recipe();
  RecipeFacts facts{
      file, size, recipe.section("model").plugin(), {}, std::string(assembly.device_info().name.view())};
  std::vector<std::string> layout;
  for (const Axis& axis : assembly.mesh().axes())
    if (axis.extent > 1) layout.push_back(detail::concat(axis.name, " ", axis.extent));
  for (const RecipeSection& strategy : recipe.strategies()) layout.push_back(strategy.plugin());
  facts.layout = join(layout, ", ");
  facts.ranks = assembly.mesh().world();
  facts.parameters = assembly.parameters();
  facts.global = assembly.batch().global;
  facts.micro = assembly.batch().micro;
  facts.seq = assembly.batch().seq;
  return facts;
}

const SettingCost& RecipeRow::cost() const {
  std::vector<const SettingCost*> order;
  for (const SettingCost& round : rounds) order.push_back(&round);
  std::sort(order.begin(), order.end(),
            [](const SettingCost* a, const SettingCost* b) { return a->step_seconds < b->step_seconds; });
  return *order.at((order.size() - 1) / 2);
}

double RecipeRow::spread() const {
  const auto [least, most] = std::minmax_element(
      rounds.begin(), rounds.end(),
      [](const SettingCost& a, const SettingCost& b) { return a.step_seconds < b.step_seconds; });
  return (most->step_seconds - least->step_seconds) / cost().step_seconds;
}

std::string recipes_text(const std::vector<RecipeRow>& rows) {
  std::vector<Cells> table = {heads};
  for (const RecipeRow& row : rows) table.push_back(cells_of(rows, row));
  std::vector<std::size_t> widths(heads.size());
  for (const Cells& cells : table)
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (cells.size() == heads.size() || i + 1 < cells.size())
        widths[i] = std::max(widths[i], cells[i].size());
  std::string text;
  for (const Cells& cells : table) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += (i ? "  " : "") + format(i < 2 ? "%-*s" : "%*s", static_cast<int>(widths[i]), cells[i].c_str());
    text += line + "\n";
  }
  return text;
}

std::string recipes_markdown(const std::vector<RecipeRow>& rows, const Provenance& made) {
  const auto line = [](const Cells& cells) { return "| " + join(cells, " | ") + " |\n"; };
  std::string text =
      "<!-- written by prun bench recipes -->\n" + line(heads) + line(Cells(heads.size(), "---"));
  for (const RecipeRow& row : rows) {
    Cells cells = cells_of(rows, row);
    cells.resize(heads.size());
    text += line(cells);
  }
  text += detail::concat("\n`", made.command, "`, ", made.date, ", prun ", made.version, ", ", made.machine,
                         "; ", made.steps, " steps in each of ", made.rounds,
                         made.rounds == 1 ? " round" : " rounds, the middle one shown", ".\n");
  return text;
}

std::string recipes_json(const std::vector<RecipeRow>& rows, const Provenance& made) {
  JsonWriter json;
  json.begin_object().member("made_by", "prun bench recipes").member("command", made.command);
  json.member("date", made.date).member("version", made.version).member("machine", made.machine);
  json.member("steps", made.steps).member("rounds", made.rounds).name("recipes").begin_array();
  for (const RecipeRow& row : rows) write_row(json, rows, row);
  return json.end_array().end_object().take();
}

std::string recipes_csv(const std::vector<RecipeRow>& rows) {
  std::string text =
      "recipe,size,ranks,step_seconds,spread,tokens_per_second,planned_bytes,measured_bytes,sent_bytes\n";
  for (const RecipeRow& row : rows) {
    text += detail::concat(row.facts.file, ",", row.facts.size, ",", row.facts.ranks, ",");
    if (row.rounds.empty()) {
      text += ",,,,,\n";
      continue;
    }
    const SettingCost& cost = row.cost();
    text += format("%.9g,%.9g,%.9g,", cost.step_seconds, row.spread(), cost.tokens_per_second) +
            detail::concat(cost.planned_bytes, ",", cost.measured_bytes, ",", cost.sent_bytes, "\n");
  }
  return text;
}

}  // namespace prun
