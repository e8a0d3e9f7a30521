#include "tune/tune_here.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>

#include "estimate/costs_file.hpp"
#include "estimate/known_costs.hpp"
#include "estimate/number_text.hpp"
#include "measure/comm_bench.hpp"
#include "measure/kernel_bench.hpp"
#include "measure/setting_bench.hpp"
#include "search/unmeasured.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Names a key that does not affect speed, so that one setting of it is the recipe itself.
constexpr const char *key_of_trial = "run.check_replicas_every", *value_of_trial = "0", *steps_of_trial = "8";

// Is a file of a recipe that ranks are started with.
class RecipeFile {
 public:
  explicit RecipeFile(const std::string& text) {
    std::string name = (fs::temp_directory_path() / "prun-tune-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw_error(ErrorCode::storage, "no folder can be made in ", fs::temp_directory_path().string(),
                  " for a recipe to try; set TMPDIR to one that can be written");
    folder_ = name;
    std::ofstream(path()) << text;
  }
  ~RecipeFile() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  RecipeFile(const RecipeFile&) = delete;
  RecipeFile& operator=(const RecipeFile&) = delete;

  std::string path() const { return (folder_ / "recipe.toml").string(); }

 private:
  fs::path folder_;
};

class Here {
 public:
  Here(const Recipe& recipe, PluginHost& plugins, const TuneRequest& request, const HereRequest& here)
      : recipe_(recipe), plugins_(plugins), request_(request), here_(here) {}

  TuneResult run() {
    if (here_.measured_seconds > 0 || here_.tried > 0) check_device();
    if (here_.measured_seconds > 0) check_can_merge(table_file(), this_machine());
    CostTable costs = known_costs(here_.costs).table;
    TuneResult result = search(recipe_, plugins_, costs, request_);
    if (here_.measured_seconds > 0) result = measured(costs, std::move(result));
    if (here_.tried > 0) try_best(result);
    conclude(recipe_, plugins_, costs, request_, result);
    return result;
  }

 private:
  void say(const std::string& line) const {
    if (request_.say) request_.say(line);
  }

  void check_device() const {
    const auto device = plugins_.create<DeviceInterface>("device", recipe_.section("device"));
    DeviceInfo info;
    raise(device->info(&info));
    if (info.absent)
      throw_error(ErrorCode::bad_input, "--measure and --try run steps on this machine, and '",
                  info.name.view(), "'; leave them out to plan for it");
  }

  // Returns the file for this machine's own figures: the table that comes with prun is not written to.
  fs::path table_file() const {
    std::error_code ignored;
    return here_.costs && fs::exists(*here_.costs, ignored) ? *here_.costs : default_costs_path();
  }

  double seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Measurements may make other layouts lead, which are measured then, as long as there is time.
  TuneResult measured(CostTable& costs, TuneResult result) {
    begin_ = Clock::now();
    const std::string before = result.best.front().text;
    CostTable found;
    found.machine = this_machine();
    while (measure(costs, result, found) || measure_exchanges(costs, result, found))
      result = search(recipe_, plugins_, costs, request_);
    if (found.exact.empty() && found.exchanges.empty()) return result;
    merge_costs(table_file(), found);
    const std::string exchanges =
        found.exchanges.empty() ? "" : detail::concat(" and exchanges among ", result.ranks, " ranks");
    result.left_out.push_back(detail::concat(
        found.exact.size(), " kernels", exchanges, " were measured in ", time_text(seconds_since_start()),
        ", into ", table_file().string(), ": another time the answer may be another"));
    if (before != result.best.front().text)
      result.left_out.push_back("before they were measured the best was " + before);
    return result;
  }

  // Measures the least known of the best layouts, one after another. Returns whether anything was measured.
  bool measure(CostTable& costs, const TuneResult& result, CostTable& found) {
    bool any = false;
    while (seconds_since_start() < here_.measured_seconds) {
      const auto [candidate, need] = least_known(costs, result);
      if (!candidate) break;
      say(detail::concat("measuring ", need.kernels, " kernels, ", time_text(need.seconds), " of a step, of ",
                         candidate->text));
      bench_rank(plugins_, recipe_of(*candidate, recipe_, plugins_), need.rank, found);
      costs.merge(found);
      any = true;
    }
    return any;
  }

  // Measures exchanges among all ranks, where there are no measured ones of so many: prices would be worked
  // out from those among fewer. Returns whether it did.
  bool measure_exchanges(CostTable& costs, const TuneResult& result, CostTable& found) {
    if (result.ranks < 2 || result.ranks_of_host < result.ranks || found.exchanges.size() > 0) return false;
    if (seconds_since_start() >= here_.measured_seconds || has_exchanges(costs, result.ranks)) return false;
    const Recipe recipe = recipe_of(result.best.front(), recipe_, plugins_);
    const RecipeFile file(tuned_toml(recipe, result.best.front().sets));
    say(detail::concat("measuring exchanges among ", result.ranks, " ranks"));
    found.merge(bench_comm(recipe, plugins_.places(), {here_.program, "bench", "comm", file.path()}));
    costs.merge(found);
    return true;
  }

  bool has_exchanges(const CostTable& costs, std::int64_t ranks) const {
    const std::string memory = memory_of_exchanges(recipe_, plugins_);
    return std::any_of(costs.exchanges.begin(), costs.exchanges.end(), [&](const auto& entry) {
      return entry.first.members == ranks && entry.first.device == memory && !entry.first.between_hosts;
    });
  }

  std::pair<const TunedCandidate*, Unmeasured> least_known(const CostTable& costs, const TuneResult& result) {
    std::pair<const TunedCandidate*, Unmeasured> least{nullptr, {}};
    for (const TunedCandidate& one : result.best) {
      const Unmeasured need = unmeasured_of(Assembly(recipe_of(one, recipe_, plugins_), plugins_), costs);
      if (need.seconds > least.second.seconds && seen_.count({one.text, need.rank}) == 0)
        least = {&one, need};
    }
    if (least.first) seen_.insert({least.first->text, least.second.rank});
    return least;
  }

  // Sorts by how long a step takes; later ones stay in their order.
  void try_best(TuneResult& result) {
    if (result.ranks_of_host < result.ranks)
      throw_error(ErrorCode::bad_input, "--try trains on this host, and ", result.ranks,
                  " ranks lie on several; leave it out");
    std::string failed;
    const std::size_t tried = std::min(here_.tried, result.best.size());
    for (std::size_t i = 0; i < tried; ++i) {
      TunedCandidate& one = result.best[i];
      say("training " + one.text);
      one.trained = train(one, failed);
    }
    const auto rate = [](const TunedCandidate& one) {
      const double tokens = one.planned.tokens_per_second * one.planned.step_seconds;
      return one.trained ? tokens / *one.trained : 0;
    };
    std::stable_sort(result.best.begin(), result.best.begin() + static_cast<std::ptrdiff_t>(tried),
                     [&](const auto& a, const auto& b) { return rate(a) > rate(b); });
    if (!result.best.front().trained)
      throw_error(ErrorCode::unsupported, "none of the best ", tried, " could be trained here: ", failed);
    result.best.front().proven = true;
    result.left_out.push_back(detail::concat(
        "the best ", tried, " were trained for ", steps_of_trial,
        " steps each and are in the order of what these took: another time it may be another"));
  }

  // Returns nothing where ranks cannot be started so, which may be this machine's fault.
  std::optional<double> train(const TunedCandidate& one, std::string& failed) {
    const Recipe recipe = recipe_of(one, recipe_, plugins_);
    const RecipeFile file(tuned_toml(recipe, one.sets));
    const SettingBench bench = bench_of(key_of_trial, value_of_trial);
    const SettingResult result =
        time_setting(bench, recipe, plugins_, value_of_trial,
                     {here_.program, "bench", "settings", file.path(), "--key", key_of_trial, "--values",
                      value_of_trial, "--setting", value_of_trial, "--steps", steps_of_trial});
    if (!result.cost) failed = result.refused;
    return result.cost ? std::optional(result.cost->step_seconds) : std::nullopt;
  }

  const Recipe& recipe_;
  PluginHost& plugins_;
  const TuneRequest& request_;
  const HereRequest& here_;
  std::set<std::pair<std::string, int>> seen_;  // says whose kernels were measured, of which rank
  Clock::time_point begin_;                     // is when measuring began
};

}  // namespace

TuneResult tune_here(const Recipe& recipe, PluginHost& plugins, const TuneRequest& request,
                     const HereRequest& here) {
  return Here(recipe, plugins, request, here).run();
}

}  // namespace prun
