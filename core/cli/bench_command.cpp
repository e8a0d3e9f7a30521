// prun bench kernels | comm | io: measures this machine for predictions. prun bench zero | offload: what a
// setting costs.
#include <algorithm>
#include <cstdio>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/open_recipe.hpp"
#include "measure/comm_bench.hpp"
#include "measure/io_bench.hpp"
#include "measure/kernel_bench.hpp"
#include "measure/layout_bench.hpp"
#include "measure/setting_bench.hpp"
#include "sim/costs_file.hpp"

namespace prun {
namespace {

constexpr const char* usage =
    "usage: prun bench kernels [RECIPE] [--no-grid] [--out FILE] | prun bench comm [RECIPE | --ranks N] "
    "[--out FILE] "
    "| prun bench io FOLDER... [--stripe KIB] [--depth N] [--file-size SIZE] [--json] [--out FILE] "
    "| "
    "prun bench zero RECIPE [--steps N] [--stage N] [--json] [--out FILE.json|FILE.csv] | "
    "prun bench offload RECIPE [--steps N] [--setting none|optimizer|all] [--json] [--out "
    "FILE.json|FILE.csv]";

std::filesystem::path target(const Arguments& arguments) {
  return arguments.path("--out").value_or(default_costs_path());
}

void save(const Arguments& arguments, const CostTable& table) {
  merge_costs(target(arguments), table);
  std::printf("wrote %s: %s\n", target(arguments).c_str(), to_text(table.machine).c_str());
}

int kernels(const Arguments& arguments) {
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
  const Say say = [](const std::string& what) {
    std::printf("measuring: %s\n", what.c_str());
    std::fflush(stdout);
  };
  if (!arguments.has("--no-grid")) bench_grid(*opened.plugins, table, say);
  if (opened.recipe) bench_recipe(*opened.plugins, *opened.recipe, table, say, arguments.all);
  std::printf("%zu kernels by formula, %zu and %zu exchanges as they are\n", table.kernels.size(),
              table.exact.size(), table.exact_exchanges.size());
  save(arguments, table);
  return 0;
}

Recipe recipe_of_comm(const Arguments& arguments, Opened& opened) {
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
  opened = open_recipe(arguments, arguments.words[1], asked_rank());
  if (mesh_of(*opened.recipe).world() == 1)
    throw_error(ErrorCode::bad_input, arguments.words[1],
                " has one rank, which exchanges nothing; change [mesh]");
  return *opened.recipe;
}

void print_exchange(const ExchangeKey& key, const ExchangeCurve& curve) {
  const ExchangePoint &first = curve.points.front(), &last = curve.points.back();
  const double rate = static_cast<double>(last.bytes) / last.seconds / 1e9;
  std::printf("%-16s among %lld: %7.1f us for %lld bytes, %6.2f GB/s at %lld MiB, bus %6.2f GB/s\n",
              name_of(key.kind), static_cast<long long>(key.members), first.seconds * 1e6,
              static_cast<long long>(first.bytes), rate, static_cast<long long>(last.bytes >> 20),
              rate * bus_share(key.kind, key.members));
}

int comm(const Arguments& arguments) {
  Opened opened;
  const Recipe recipe = recipe_of_comm(arguments, opened);
  if (is_asked()) return answer_bench_comm(recipe, opened.plugins->places());
  const CostTable table = bench_comm(recipe, opened.plugins->places(), arguments.all);
  std::printf("exchanges of %s\n", table.exchanges.begin()->first.device.c_str());
  for (const auto& [key, curve] : table.exchanges) print_exchange(key, curve);
  save(arguments, table);
  return 0;
}

// One where either is said.
std::vector<IoCase> cases_asked(const Arguments& arguments) {
  if (arguments.values.count("--stripe") + arguments.values.count("--depth") == 0) return io_cases();
  return {{arguments.number("--stripe", IoCase{}.stripe_kib), arguments.number("--depth", IoCase{}.depth)}};
}

// What is kept for predictions is what the tier does where a recipe says nothing of it.
int io(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  IoAsked asked;
  asked.folders.assign(arguments.words.begin() + 1, arguments.words.end());
  asked.bytes = arguments.bytes("--file-size", asked.bytes);
  const bool text = !arguments.has("--json");
  if (text) std::fputs(io_header().c_str(), stdout);
  CostTable table;
  table.machine = this_machine();
  std::vector<std::pair<IoCase, IoRates>> results;
  for (const IoCase& one : cases_asked(arguments)) {
    const IoRates rates = time_drives(plugins, asked, one);
    results.emplace_back(one, rates);
    if (text) std::fputs(io_line(one, rates).c_str(), stdout);
    std::fflush(stdout);
    if (one == IoCase{}) add_drives(asked, plugins, rates, table);
  }
  if (!text) std::printf("%s\n", io_json(asked, results).c_str());
  merge_costs(target(arguments), table);
  if (text) std::printf("wrote %s: %s\n", target(arguments).c_str(), to_text(table.machine).c_str());
  return 0;
}

// ---------------------------------------------------------------- settings of a strategy

void check_target(const std::filesystem::path& file) {
  if (file.extension() != ".json" && file.extension() != ".csv")
    throw_error(ErrorCode::bad_input, "--out ", file.string(), ": a file that ends in .json or in .csv");
}

std::vector<std::string> settings_asked(const Arguments& arguments, const SettingBench& bench) {
  const std::string option = detail::concat("--", bench.name);
  const auto asked = arguments.values.find(option);
  if (asked == arguments.values.end()) return bench.settings;
  if (std::find(bench.settings.begin(), bench.settings.end(), asked->second) == bench.settings.end()) {
    std::vector<std::string> others = bench.settings;
    const std::string last = others.back();
    others.pop_back();
    throw_error(ErrorCode::bad_input, option, " takes ", join(others, ", "), " or ", last, ", not '",
                asked->second, "'");
  }
  return {asked->second};
}

int settings(const Arguments& arguments, const SettingBench& bench) {
  const Opened opened = open_recipe(arguments, arguments.words[1], asked_rank());
  const std::int64_t steps = arguments.number("--steps", 20);
  constexpr std::int64_t fewest = 3;  // of which one is measured
  if (steps < fewest)
    throw_error(ErrorCode::bad_input, "--steps takes at least ", fewest, " steps here, not ", steps);
  const std::vector<std::string> asked = settings_asked(arguments, bench);
  if (is_asked())
    return answer(bench.at(*opened.recipe, asked.front()), opened.plugins->places(),
                  how_a_setting_does(steps));
  if (!bench.moves && mesh_of(*opened.recipe).world() == 1)
    throw_error(
        ErrorCode::bad_input, arguments.words[1],
        " has one rank, which keeps everything whole at any stage; give its mesh an axis, such as dp = 2");
  const std::optional<std::filesystem::path> out = arguments.path("--out");
  if (out) check_target(*out);
  const bool table = !arguments.has("--json");
  if (table) std::fputs(header_of(bench).c_str(), stdout);
  std::vector<SettingResult> results;
  for (const std::string& setting : asked) {
    std::vector<std::string> command = arguments.all;
    command.insert(command.end(), {detail::concat("--", bench.name), setting});
    results.push_back(time_setting(bench, *opened.recipe, *opened.plugins, setting, command));
    if (table) std::fputs(line_of(bench, results.back(), results.front()).c_str(), stdout);
    std::fflush(stdout);
  }
  const std::string json = json_of(bench, *opened.recipe, results) + "\n";
  if (!table) std::fputs(json.c_str(), stdout);
  if (out)
    replace_text_file(std::filesystem::absolute(*out),
                      out->extension() == ".csv" ? csv_of(bench, results) : json);
  const auto ran = [](const SettingResult& result) { return result.cost.has_value(); };
  return std::any_of(results.begin(), results.end(), ran) ? 0 : exit_code(ErrorCode::unsupported);
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  const bool of_kernels = !words.empty() && words[0] == "kernels" && words.size() <= 2;
  const bool of_comm = !words.empty() && words[0] == "comm" && words.size() <= 2;
  if (words.size() == 2 && words[0] == "zero") return settings(arguments, zero_bench());
  if (words.size() == 2 && words[0] == "offload") return settings(arguments, offload_bench());
  const bool of_drives = words.size() >= 2 && words[0] == "io";
  if (!of_kernels && !of_comm && !of_drives) throw_error(ErrorCode::bad_input, usage);
  check_can_merge(target(arguments), this_machine());
  return of_drives ? io(arguments) : of_kernels ? kernels(arguments) : comm(arguments);
}

}  // namespace prun
