// Implements prun tune: it searches what a recipe leaves out, and writes the best as a recipe that says
// everything.
#include "tune/tune_verb.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/number_text.hpp"
#include "measure/comm_bench.hpp"
#include "measure/kernel_bench.hpp"
#include "measure/setting_bench.hpp"
#include "search/tune.hpp"
#include "search/tune_trial.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- tune here
// Searches with this machine: kernels of the best layouts are measured, and the best are trained. The result
// then depends on how long these took, so it need not be the same twice.

struct HereRequest {
  std::optional<std::filesystem::path> costs;  // as for known_costs()
  double measured_seconds = 0;                 // 0: nothing is measured
  std::size_t tried = 0;                       // counts the best that are trained
  std::string program;                         // the one by which ranks are started
};

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

  // Measures exchanges among all ranks, where there are no measured ones of so many: costs would be worked
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

// Throws bad_input where measuring or training is wanted and the recipe's device is not here.
TuneResult tune_here(const Recipe& recipe, PluginHost& plugins, const TuneRequest& request,
                     const HereRequest& here) {
  return Here(recipe, plugins, request, here).run();
}

// ------------------------------------------------------------------- tune text

std::string size(std::int64_t bytes) { return size_text(bytes); }

// Returns "41.2 ms  12,400  38.0 %  1.20 GiB ..." below the names of the columns.
std::string row_of(const TunedCandidate& one, bool were_tried) {
  const Planned& planned = one.planned;
  std::string row = format("%12s %12s", time_text(planned.step_seconds).c_str(),
                           rate_text(planned.tokens_per_second).c_str());
  row += planned.mfu > 0 ? format(" %6.1f %%", planned.mfu * 100) : format(" %8s", "-");
  row += format(" %11s", size(planned.device_bytes).c_str());
  row += planned.bubble > 0 ? format(" %6.1f %%", planned.bubble * 100) : format(" %8s", "-");
  row += format(" %6.1f %%", 100 * planned.exposed.communication / planned.step_seconds);
  if (were_tried) row += format(" %12s", one.trained ? time_text(*one.trained).c_str() : "-");
  return row + "  " + one.text + "\n";
}

bool any_tried(const TuneResult& result) {
  return std::any_of(result.best.begin(), result.best.end(),
                     [](const TunedCandidate& one) { return one.trained.has_value(); });
}

std::string words_of(TuneGoal goal) {
  if (goal == TuneGoal::time) return "the time of a step";
  if (goal == TuneGoal::memory) return "memory";
  return "tokens a second; of those within 1 % of the most, by the smallest batch";
}

std::string counts_of(const TuneResult& result) {
  return detail::concat(result.looked_at, " looked at, ", result.planned, " planned, ", result.ruled_out,
                        " ruled out by what they take at least, ", result.refused, " cannot be combined, ",
                        result.lacked_memory, " lack memory");
}

std::string details_of(const TunedCandidate& best) {
  std::string text = "memory      of the fullest rank\n";
  for (const PlaceBytes& place : best.planned.memory)
    text += format("  %-32s %12s\n", ("in " + place.place).c_str(), size(place.bytes).c_str());
  if (!best.planned.sent.empty()) text += "links       what a rank sends a step\n";
  for (const LinkBytes& link : best.planned.sent)
    text += format("  %-20s %12s  axis %s\n", link.queue.c_str(), size_text(link.bytes).c_str(),
                   link.axis.c_str());
  if (const auto& range = best.planned.range)
    text += "prediction  between " + time_text(best.planned.step_seconds * range->first, 2) + " and " +
            time_text(best.planned.step_seconds * range->second, 2) + "\n";
  for (const std::string& note : best.planned.notes) text += "  " + note + "\n";
  return text;
}

void write_candidate(JsonWriter& json, const TunedCandidate& one) {
  const Planned& planned = one.planned;
  json.begin_object().member("text", one.text).member("proven", one.proven);
  json.name("sets").begin_array();
  for (const std::string& set : one.sets) json.value(set);
  json.end_array().member("step_seconds", planned.step_seconds);
  if (planned.range)
    json.member("least_step_seconds", planned.step_seconds * planned.range->first)
        .member("most_step_seconds", planned.step_seconds * planned.range->second);
  if (one.trained) json.member("trained_step_seconds", *one.trained);
  json.member("tokens_per_second", planned.tokens_per_second).member("mfu", planned.mfu);
  json.member("bubble", planned.bubble)
      .member("exposed_communication_seconds", planned.exposed.communication);
  if (planned.exposed.drives) json.member("exposed_drives_seconds", *planned.exposed.drives);
  json.member("device_bytes", planned.device_bytes).name("memory").begin_object();
  for (const PlaceBytes& place : planned.memory) json.member(place.place, place.bytes);
  json.end_object().name("sent_bytes").begin_object();
  for (const LinkBytes& link : planned.sent) json.member(link.queue, link.bytes);
  json.end_object().end_object();
}

}  // namespace

std::string tune_text(const TuneResult& result, const TuneRequest& request) {
  std::string text = detail::concat("ranks       ", result.ranks, result.ranks == 1 ? " rank" : " ranks");
  if (result.ranks > 1) text += detail::concat(", ", result.ranks_of_host, " on a host");
  text += "\nlooked      " + counts_of(result) + "\n";
  if (result.unpriced.count > 0) text += "unpriced    " + to_text(result.unpriced) + "\n";
  for (const std::string& line : result.left_out) text += "left        " + line + "\n";
  text += "best        by " + words_of(request.goal) + "\n";
  const bool were_tried = any_tried(result);
  text += format("%12s %12s %8s %11s %8s %8s%s\n", "step", "tokens/s", "MFU", "memory", "bubble", "exposed",
                 were_tried ? "      trained" : "");
  for (const TunedCandidate& one : result.best) text += row_of(one, were_tried);
  text += details_of(result.best.front());
  for (const std::string& line : result.why) text += "why         " + line + "\n";
  return text;
}

std::string tune_json(const TuneResult& result, const TuneRequest& request) {
  JsonWriter json;
  json.begin_object().member("ranks", result.ranks).member("ranks_of_host", result.ranks_of_host);
  json.member("goal", name_of(request.goal));
  json.member("looked_at", result.looked_at).member("planned", result.planned);
  json.member("ruled_out", result.ruled_out).member("refused", result.refused);
  json.member("lacked_memory", result.lacked_memory).member("unpriced", result.unpriced.count);
  json.name("left_out").begin_array();
  for (const std::string& line : result.left_out) json.value(line);
  json.end_array().name("best").begin_array();
  for (const TunedCandidate& one : result.best) write_candidate(json, one);
  json.end_array().name("why").begin_array();
  for (const std::string& line : result.why) json.value(line);
  json.end_array().name("notes").begin_array();
  for (const std::string& note : result.best.front().planned.notes) json.value(note);
  json.end_array().member("recipe", result.recipe);
  return json.end_object().take();
}

namespace {

// ------------------------------------------------------------------- tune verb

const OutputKind recipe_kind{"a recipe of prun tune", "# Laid out by prun tune"};

TuneGoal goal_of(const Arguments& arguments) {
  const auto said = arguments.values.find("--for");
  if (said == arguments.values.end()) return TuneGoal::time;
  for (const TuneGoal goal : {TuneGoal::time, TuneGoal::memory, TuneGoal::tokens})
    if (said->second == name_of(goal)) return goal;
  throw_error(ErrorCode::bad_input, "--for takes time, memory or tokens, not ", in_quotes(said->second));
}

TuneRequest request_of(const Arguments& arguments) {
  TuneRequest request;
  request.scope = {arguments.number("--ranks", 0), arguments.number("--hosts", 0),
                   arguments.has("--rounding")};
  request.shown = static_cast<std::size_t>(arguments.number("--top", 10));
  request.threads = static_cast<std::size_t>(arguments.number("--threads", 0));
  request.scope.most_batch = arguments.number("--batch-to", 0);
  request.goal = goal_of(arguments);
  if (request.scope.most_batch > 0 && request.goal != TuneGoal::tokens)
    throw_error(ErrorCode::bad_input, "--batch-to lets the batch grow for tokens a second; add --for tokens");
  if (!arguments.has("--json"))
    request.say = [](const std::string& line) { std::fprintf(stderr, "prun: %s\n", line.c_str()); };
  return request;
}

HereRequest here_of(const Arguments& arguments) {
  constexpr double longest = 1e6;
  HereRequest here;
  here.costs = arguments.path("--costs");
  here.measured_seconds = arguments.real("--measure", 0, 1, longest);
  here.tried = static_cast<std::size_t>(arguments.number("--try", 0));
  here.program = arguments.all.front();
  return here;
}

int tune_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const Opened opened = open_unsettled(arguments, file);
  const TuneRequest request = request_of(arguments);
  const HereRequest here = here_of(arguments);
  if (const auto out = arguments.path("--write")) check_output(*out, recipe_kind);
  const TuneResult result = tune_here(*opened.unsettled, *opened.plugins, request, here);
  if (const auto out = arguments.path("--write"))
    write_cleanly(*out,
                  "# Laid out by prun tune for " + std::to_string(result.ranks) +
                      " ranks; what it chose says so.\n\n" + result.recipe,
                  recipe_kind);
  std::fputs(arguments.has("--json") ? (tune_json(result, request) + "\n").c_str()
                                     : tune_text(result, request).c_str(),
             stdout);
  return 0;
}

}  // namespace

std::vector<Command> tune_verb() {
  return {{"tune",
           "RECIPE",
           "search what the recipe leaves out: mesh, strategies, their options, microbatch",
           {json_option,
            costs_option,
            {"--ranks", "N", "how many to lay it out for; those of the recipe, or one for each unit"},
            {"--hosts", "M", "that share them; as many as the device says"},
            {"--for", "time|memory|tokens",
             "the shortest step, the least memory, or the most tokens a second; time"},
            {"--batch-to", "N", "with --for tokens: batch.global may grow to so many"},
            {"--rounding", "", "also what rounds otherwise"},
            {"--measure", "SECONDS",
             "first measure kernels of the best, the least known first, into the cost table"},
            {"--try", "N", "train the best N for some steps, and take the fastest"},
            {"--write", "FILE", "the best, as a recipe that says everything"},
            {"--top", "N", "how many are shown, 10"},
            {"--threads", "N", "of the search; as many as cores"}},
           tune_command}};
}

}  // namespace prun
