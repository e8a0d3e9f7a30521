// Implements prun bench kernels | comm | io, which measure this machine for predictions, and prun bench
// settings | STRATEGY, which measure what a setting costs.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/text.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/number_text.hpp"
#include "measure/comm_bench.hpp"
#include "measure/io_bench.hpp"
#include "measure/kernel_bench.hpp"
#include "measure/layout_bench.hpp"
#include "measure/setting_bench.hpp"
#include "prun/plugin.hpp"
#include "search/settled_recipe.hpp"

namespace prun {
namespace {

constexpr CommandOption measured_json = {"--json", "", "what was measured, as the cost table has it"};
constexpr CommandOption out_costs = {"--out", "FILE", "the cost table that results are added to"};
constexpr CommandOption out_results = {"--out", "FILE", "results in a file: .json, .csv or .md"};
constexpr CommandOption one_setting = {"--setting", "SETTING", "that one alone"};
constexpr CommandOption steps_of_each = {"--steps", "N", "steps of each, 20"};

std::filesystem::path target(const Arguments& arguments) {
  return arguments.path("--out").value_or(default_costs_path());
}

// A person sees this part of the measurements; a program gets all of them.
void save(const Arguments& arguments, const CostTable& table, const std::string& said) {
  merge_costs(target(arguments), table);
  if (arguments.has("--json"))
    std::printf("%s\n", to_json(table).c_str());
  else
    std::printf("%swrote %s: %s\n", said.c_str(), target(arguments).c_str(), to_text(table.machine).c_str());
}

// Benches each way that predictions choose among, as a recipe and a command that settle it.
void bench_each_way(const Opened& opened, const Arguments& arguments, CostTable& table, const Say& say) {
  for (const RecipeVariant& variant : variants_of(*opened.unsettled, *opened.plugins)) try {
      if (!variant.settled.empty()) say(variant.said());
      std::vector<std::string> command = arguments.all;
      for (const std::string& set : variant.settled) command.insert(command.end(), {"--set", set});
      bench_recipe(*opened.plugins, variant.recipe, table, say, command);
    } catch (const Error& error) {
      if (variant.settled.empty() || exit_code(error.code()) != exit_code(ErrorCode::bad_input)) throw;
      say(detail::concat("not ", variant.said(), ", which is refused: ", first_line(error.what())));
    }
}

std::string memory_line(const CostTable& table) {
  return table.host_gb_per_second ? format("memory of the host: %.1f GB/s\n", *table.host_gb_per_second) : "";
}

// Prints what the reader should know before minutes of measuring.
void say_first(const Arguments& arguments, const Opened& opened, const Say& say) {
  if (arguments.has("--json")) return;
  if (const std::string busy = busy_note(); !busy.empty())
    std::fprintf(stderr, "prun: note: %s\n", busy.c_str());
  const bool alone = arguments.has("--no-grid") || arguments.has("--quick");
  if (!alone) say("a minute or two; --quick measures less, for a first prediction");
  if (opened.recipe && mesh_of(*opened.recipe).world() > 1)
    say(detail::concat("kernels; exchanges of all sizes between ranks: prun bench comm ",
                       arguments.words[1]));
}

// Without a recipe there is nothing that --set could change.
void refuse_sets(const Arguments& arguments) {
  if (arguments.words.size() == 1 && !arguments.sets.empty())
    throw_error(ErrorCode::bad_input, "cannot set ", arguments.sets.front(),
                ": --set changes a recipe, and none is given; name it, prun bench ", arguments.words[0],
                " RECIPE");
}

int kernels(const Arguments& arguments) {
  refuse_sets(arguments);
  Opened opened;
  if (arguments.words.size() == 2)
    opened = open_recipe(arguments, arguments.words[1], asked_rank());
  else
    opened.plugins = std::make_unique<PluginHost>(plugin_places({}, {}, arguments.plugin_paths));
  if (is_asked())
    return answer(timed_layout(opened.recipe.value()), opened.plugins->places(),
                  how_long_steps_take(timed_steps));
  CostTable table;
  table.machine = this_machine();
  const bool text = !arguments.has("--json");
  const Say say = [text](const std::string& what) {
    if (!text) return;
    std::printf("measuring: %s\n", what.c_str());
    std::fflush(stdout);
  };
  if (opened.recipe) make_room_for_timing(*opened.recipe, *opened.plugins);
  say_first(arguments, opened, say);
  if (!arguments.has("--no-grid")) bench_grid(*opened.plugins, table, say, arguments.has("--quick"));
  if (opened.unsettled) bench_each_way(opened, arguments, table, say);
  save(arguments, table,
       detail::concat(table.kernels.size(), " kernels by formula, ", table.exact.size(), " and ",
                      table.exact_exchanges.size(), " exchanges as they are\n", memory_line(table)));
  return 0;
}

Recipe recipe_of_comm(const Arguments& arguments, Opened& opened) {
  refuse_sets(arguments);
  if (const auto launched = launched_rank(); launched && arguments.words.size() == 1)
    throw_error(ErrorCode::bad_input, "this is rank ", launched->rank, " of ", launched->world, " by ",
                launched->how,
                ": to measure between them, name a recipe with as many ranks, prun bench comm RECIPE");
  if (arguments.words.size() == 1) {
    const std::int64_t ranks = arguments.number("--ranks", 2);
    if (ranks < 2 || ranks > 64)
      throw_error(ErrorCode::bad_input,
                  "--ranks takes 2 to 64 ranks, which are threads of this process, not ", ranks);
    opened.plugins = std::make_unique<PluginHost>(plugin_places({}, {}, arguments.plugin_paths));
    return recipe_of_ranks(ranks, *opened.plugins);
  }
  if (arguments.values.count("--ranks"))
    throw_error(ErrorCode::bad_input,
                "--ranks goes without a recipe, which has as many as its mesh; change [mesh]");
  const std::optional<Identity> launched = launched_rank();
  opened = open_recipe(arguments, arguments.words[1], launched ? launched : asked_rank());
  if (mesh_of(*opened.recipe).world() == 1)
    throw_error(ErrorCode::bad_input, arguments.words[1],
                " has one rank, which exchanges nothing; change [mesh]");
  return *opened.recipe;
}

std::string exchange_line(const ExchangeKey& key, const ExchangeCurve& curve) {
  const ExchangePoint &first = curve.points.front(), &last = curve.points.back();
  const double rate = static_cast<double>(last.bytes) / last.seconds / 1e9;
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  return format("%-16s among %lld: %8s for %s, %6.2f GB/s at %s, bus %6.2f GB/s\n", name_of(key.kind),
                static_cast<long long>(key.members), time_text(first.seconds).c_str(),
                size(first.bytes).c_str(), rate, size(last.bytes).c_str(),
                rate * bus_share(key.kind, key.members));
}

int comm(const Arguments& arguments) {
  Opened opened;
  const Recipe recipe = recipe_of_comm(arguments, opened);
  if (is_asked()) return answer_bench_comm(recipe, opened.plugins->places());
  const auto say = [&](const CostTable& table, const std::string& between) {
    std::string said = "exchanges of " + table.exchanges.begin()->first.device + ", " + between + "\n";
    for (const auto& [key, curve] : table.exchanges) said += exchange_line(key, curve);
    save(arguments, table, said);
  };
  if (const std::optional<Identity> launched = launched_rank())
    return bench_comm_between(recipe, opened.plugins->places(), [&](const CostTable& table) {
      const int hosts = launched->world / launched->local_world;
      say(table,
          detail::concat("between ", launched->world, " ranks on ", hosts, hosts == 1 ? " host" : " hosts"));
    });
  say(bench_comm(recipe, opened.plugins->places(), arguments.all),
      ranks_are_processes(recipe, *opened.plugins) ? "between processes of this host"
                                                   : "between threads of this process");
  return 0;
}

// Returns one case where the user gives either number.
std::vector<IoCase> cases_asked(const Arguments& arguments, const TierPlugin& tier) {
  if (arguments.values.count("--stripe") + arguments.values.count("--depth") == 0) return io_cases(tier);
  if (tier.kib.empty())
    throw_error(ErrorCode::bad_input, "tier ", tier.name,
                " has no options for the size and number of transfers; leave --stripe and --depth out");
  return {{arguments.number("--stripe", IoCase{}.stripe_kib), arguments.number("--depth", IoCase{}.depth)}};
}

// Returns the only tier, or the one that the user names.
TierPlugin tier_asked(const Arguments& arguments, const PluginHost& plugins) {
  const std::vector<TierPlugin> tiers = tier_plugins(plugins.places());
  std::vector<std::string> names;
  names.reserve(tiers.size());
  for (const TierPlugin& tier : tiers) names.push_back(tier.name);
  const auto named = arguments.values.find("--tier");
  if (named == arguments.values.end() && tiers.size() == 1) return tiers.front();
  for (const TierPlugin& tier : tiers)
    if (named != arguments.values.end() && named->second == tier.name) return tier;
  throw_error(ErrorCode::bad_input,
              named == arguments.values.end() ? std::string("--tier says which tier is meant")
                                              : "--tier: there is no tier " + in_quotes(named->second),
              names.empty() ? "; no device plugin is one" : "; there are " + join(names, ", "));
}

// Predictions use the rates that the tier has where a recipe says nothing of it.
int io(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  IoAsked asked;
  asked.tier = tier_asked(arguments, plugins);
  asked.folders.assign(arguments.words.begin() + 1, arguments.words.end());
  asked.bytes = arguments.bytes("--file-size", asked.bytes);
  const bool text = !arguments.has("--json");
  if (text) std::fputs(io_header().c_str(), stdout);
  CostTable table;
  table.machine = this_machine();
  std::vector<std::pair<IoCase, IoRates>> results;
  for (const IoCase& one : cases_asked(arguments, asked.tier)) {
    const IoRates rates = time_drives(plugins, asked, one);
    results.emplace_back(one, rates);
    if (text) std::fputs(io_line(one, rates).c_str(), stdout);
    std::fflush(stdout);
    if (one == IoCase{}) add_drives(asked, plugins, rates, table);
  }
  if (!text) std::printf("%s\n", io_json(asked, results).c_str());
  const auto usual = std::find_if(results.begin(), results.end(),
                                  [](const auto& result) { return result.first == IoCase{}; });
  const auto& [one, rates] = usual == results.end() ? results.front() : *usual;
  if (text) std::fputs(io_recipe(plugins, asked, one, rates).c_str(), stdout);
  merge_costs(target(arguments), table);
  if (text) std::printf("wrote %s: %s\n", target(arguments).c_str(), to_text(table.machine).c_str());
  return 0;
}

// ---------------------------------------------------------------- settings of a strategy

void check_target(const SettingBench& bench, const std::filesystem::path& file) {
  if (file.extension() != ".json" && file.extension() != ".csv" && file.extension() != ".md")
    throw_error(ErrorCode::bad_input, "--out ", file.string(), ": a file that ends in .json, .csv or .md");
  check_output(file, results_kind(bench, file));
}

std::vector<std::string> settings_asked(const Arguments& arguments, const SettingBench& bench) {
  const auto asked = arguments.values.find("--setting");
  if (asked == arguments.values.end()) return bench.settings.names();
  return {bench.find(asked->second).name};
}

// Returns the bench of the given strategy, or of a key.
SettingBench bench_asked(const Arguments& arguments, const std::vector<SearchPlace>& places) {
  const std::string& word = arguments.words[0];
  if (word == "settings") return bench_of(arguments.values.at("--key"), arguments.values.at("--values"));
  std::vector<std::string> names, words = {"kernels", "comm", "io", "settings", "recipes"};
  for (const PluginNote& note : benched_strategies(places)) {
    if (note.name == word) return bench_of(note);
    names.push_back(note.name);
  }
  words.insert(words.end(), names.begin(), names.end());
  const std::string nearest = did_you_mean(word, words);
  throw_error(ErrorCode::bad_input, in_quotes(word), " is no strategy that lists settings to bench",
              nearest.empty() ? "; there are " + join(names, ", ") : nearest);
}

int settings(const Arguments& arguments) {
  const SettingBench bench =
      bench_asked(arguments, plugin_places(arguments.words[1], arguments.sets, arguments.plugin_paths));
  const Opened opened = open_recipe(arguments, arguments.words[1], asked_rank());
  const std::int64_t steps = arguments.number("--steps", 20);
  constexpr std::int64_t fewest = 3;  // at least one of them is measured
  if (steps < fewest)
    throw_error(ErrorCode::bad_input, "--steps takes at least ", fewest, " steps here, not ", steps);
  const std::vector<std::string> asked = settings_asked(arguments, bench);
  if (is_asked())
    return answer(bench.at(*opened.recipe, asked.front()), opened.plugins->places(),
                  how_a_setting_does(steps));
  if (bench.divides && mesh_of(*opened.recipe).world() == 1)
    throw_error(ErrorCode::bad_input, arguments.words[1], " has one rank, which strategy ", bench.strategy,
                " has nothing to share out among; give its mesh an axis, such as dp = 2");
  const std::optional<std::filesystem::path> out = arguments.path("--out");
  if (out) check_target(bench, *out);
  const bool table = !arguments.has("--json");
  if (table) std::fputs(header_of(bench).c_str(), stdout);
  std::vector<SettingResult> results;
  for (const std::string& setting : asked) {
    std::vector<std::string> command = arguments.all;
    command.insert(command.end(), {"--setting", setting});
    results.push_back(time_setting(bench, *opened.recipe, *opened.plugins, setting, command));
    compare_with_first(bench, results);
    if (table) std::fputs(line_of(bench, results.back(), results.front()).c_str(), stdout);
    std::fflush(stdout);
  }
  const std::string json = json_of(bench, *opened.recipe, results) + "\n";
  if (!table) std::fputs(json.c_str(), stdout);
  if (out)
    write_cleanly(*out,
                  out->extension() == ".csv"  ? csv_of(bench, results)
                  : out->extension() == ".md" ? markdown_of(bench, results)
                                              : json,
                  results_kind(bench, *out));
  const auto ran = [](const SettingResult& result) { return result.cost.has_value(); };
  return std::any_of(results.begin(), results.end(), ran) ? 0 : exit_code(ErrorCode::unsupported);
}

// ---------------------------------------------------------------- recipes

constexpr std::int64_t fewest_steps = 3;  // at least one of them is measured

Arguments with_sets(Arguments arguments, const std::vector<std::string>& sets) {
  arguments.sets.insert(arguments.sets.end(), sets.begin(), sets.end());
  return arguments;
}

// Returns the command whose ranks train one recipe at one size.
std::vector<std::string> command_for(const Arguments& arguments, const std::string& file) {
  std::vector<std::string> command = {arguments.all.front(), "bench", "recipes", file};
  for (const std::string& set : arguments.sets) command.insert(command.end(), {"--set", set});
  for (const std::filesystem::path& path : arguments.plugin_paths)
    command.insert(command.end(), {"--plugin-path", path.string()});
  if (const auto steps = arguments.values.find("--steps"); steps != arguments.values.end())
    command.insert(command.end(), {"--steps", steps->second});
  return command;
}

// Takes one more round of a recipe at a size. What refuses it once is not asked again.
void take_round(const Arguments& arguments, RecipeRow& row) {
  if (!row.refused.empty()) return;
  try {
    const Opened opened = open_recipe(arguments, row.facts.file);
    if (row.rounds.empty()) row.facts = facts_of(row.facts.file, row.facts.size, assemble(opened));
    const SettingResult result = time_recipe(for_timing(*opened.recipe), *opened.plugins, row.facts.file,
                                             command_for(arguments, row.facts.file));
    row.rounds.push_back(*result.cost);
  } catch (const Error& error) {
    row.refused = in_one_line(error.what());
    row.rounds.clear();
  }
}

OutputKind kind_of_table(const std::filesystem::path& file) {
  const std::string end = file.extension();
  if (end != ".md" && end != ".json" && end != ".csv")
    throw_error(ErrorCode::bad_input, "--out ", file.string(), ": a file that ends in .md, .json or .csv");
  return {"results of prun bench recipes", end == ".md"     ? "<!-- written by prun bench recipes -->"
                                           : end == ".json" ? R"({"made_by":"prun bench recipes")"
                                                            : "recipe,size,ranks,step_seconds,"};
}

Provenance provenance_of(const Arguments& arguments, std::int64_t steps, std::int64_t rounds) {
  std::vector<std::string> words = arguments.all;
  words.front() = "prun";
  return {join(words, " "),
          utc_text(std::time(nullptr)),
          std::string(sdk_version),
          to_text(this_machine()),
          steps,
          rounds};
}

std::vector<RecipeRow> timed_rows(const Arguments& arguments, const std::vector<BenchedSize>& sizes,
                                  std::int64_t rounds) {
  std::vector<RecipeRow> rows;
  for (const BenchedSize& size : sizes)
    for (auto file = arguments.words.begin() + 1; file != arguments.words.end(); ++file) {
      RecipeRow& row = rows.emplace_back();
      row.facts.file = *file;
      row.facts.size = size.name;
    }
  for (std::int64_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::fprintf(stderr, "prun: round %lld of %lld, %s %s\n", static_cast<long long>(round + 1),
                   static_cast<long long>(rounds), rows[i].facts.file.c_str(), rows[i].facts.size.c_str());
      take_round(with_sets(arguments, sizes[i / (arguments.words.size() - 1)].sets), rows[i]);
    }
  return rows;
}

int recipes(const Arguments& arguments) {
  const std::int64_t steps = arguments.number("--steps", 20), rounds = arguments.number("--rounds", 3);
  if (steps < fewest_steps)
    throw_error(ErrorCode::bad_input, "--steps takes at least ", fewest_steps, " steps here, not ", steps);
  if (is_asked()) {
    const Opened opened = open_recipe(arguments, arguments.words.at(1), asked_rank());
    return answer(for_timing(*opened.recipe), opened.plugins->places(), how_a_setting_does(steps));
  }
  if (rounds < 1 || rounds > 1000)
    throw_error(ErrorCode::bad_input, "--rounds takes 1 to 1000 rounds, not ", rounds);
  const auto each = arguments.values.find("--each");
  const std::vector<BenchedSize> sizes =
      each == arguments.values.end() ? std::vector<BenchedSize>(1) : sizes_of(each->second);
  const std::optional<std::filesystem::path> out = arguments.path("--out");
  if (out) check_output(*out, kind_of_table(*out));
  const std::vector<RecipeRow> rows = timed_rows(arguments, sizes, rounds);
  const Provenance made = provenance_of(arguments, steps, rounds);
  const std::string json = recipes_json(rows, made) + "\n";
  std::fputs(arguments.has("--json") ? json.c_str() : recipes_text(rows).c_str(), stdout);
  if (out)
    write_output(*out,
                 out->extension() == ".md"    ? recipes_markdown(rows, made)
                 : out->extension() == ".csv" ? recipes_csv(rows)
                                              : json,
                 kind_of_table(*out));
  const auto ran = [](const RecipeRow& row) { return !row.rounds.empty(); };
  return std::any_of(rows.begin(), rows.end(), ran) ? 0 : exit_code(ErrorCode::unsupported);
}

int bench_command(const Arguments& arguments) {
  const std::string& verb = arguments.words[0];
  if (verb == "recipes") return recipes(arguments);
  if (verb != "io" && verb != "kernels" && verb != "comm") return settings(arguments);
  // A rank may see fewer cores than the machine has; it writes no table.
  if (const auto launched = launched_rank(); !is_asked() && !(launched && launched->rank > 0))
    check_can_merge(target(arguments), this_machine());
  return verb == "io" ? io(arguments) : verb == "kernels" ? kernels(arguments) : comm(arguments);
}

// These commands measure into the cost table.
std::vector<Command> measuring_commands() {
  return {
      {"bench kernels",
       "[RECIPE]",
       "measure this machine's kernels, a recipe's own with its exchanges too, into the cost table",
       {{"--no-grid", "", "the recipe's alone"},
        {"--quick", "", "of the grid a part: fp32 and bf16, smaller models, this rank's threads alone"},
        measured_json,
        out_costs},
       bench_command},
      {"bench comm",
       "[RECIPE]",
       "measure exchanges between ranks, of a recipe's device and comm plugin between its ranks, into the "
       "cost "
       "table",
       {{"--ranks", "N", "without a recipe: among so many threads, 2"}, measured_json, out_costs},
       bench_command},
      {"bench io",
       "FOLDER...",
       "measure the drives of these folders as a tier uses them: read, written and both at once, by several "
       "sizes and numbers of transfers, into the cost table",
       {{"--tier", "NAME", "the tier's plugin, where there are several"},
        {"--stripe", "KIB", "of that size alone, 1024"},
        {"--depth", "N", "so many at a time alone, 16"},
        {"--file-size", "SIZE", "of all files together, 512MiB"},
        json_option,
        out_costs},
       bench_command}};
}

// These commands compare a recipe's settings.
std::vector<Command> comparing_commands() {
  return {
      {"bench recipes",
       "RECIPE...",
       "train each of them in turns and make one table: time, tokens a second, memory and how many times as "
       "fast as the first",
       {{"--each", "KEY=V1,V2", "at each of these values; KEY+KEY=V1+W1,V2+W2 of keys that vary together"},
        {"--rounds", "N", "times that all are trained in turn, 3; the middle one is shown"},
        steps_of_each,
        json_option,
        {"--out", "FILE", "results in a file: .md, .json or .csv"}},
       bench_command},
      {"bench settings",
       "RECIPE",
       "train it with each value of a key in turn and show what each costs and saves",
       {{"--key", "KEY", "of the recipe, strategy.0.stage say", true},
        {"--values", "VALUES", "with commas between; the others are compared with the first", true},
        one_setting,
        steps_of_each,
        json_option,
        out_results},
       bench_command},
      {"bench",
       "STRATEGY RECIPE",
       "the same of a strategy with each of the settings that it lists; prun help bench says which do",
       {one_setting, steps_of_each, json_option, out_results},
       bench_command}};
}

}  // namespace

std::vector<Command> bench_verb() {
  std::vector<Command> commands = measuring_commands();
  for (Command& command : comparing_commands()) commands.push_back(std::move(command));
  return commands;
}

}  // namespace prun
