#include "runs/diff.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "runs/log.hpp"
#include "runs/recipe_lines.hpp"
#include "runs/text_file.hpp"
#include "runs/time_account.hpp"
#include "runs/words.hpp"
#include "train/checkpoint/settings.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

using Named = std::vector<std::pair<std::string, std::string>>;

using Unlike = RunDifference::Unlike;

constexpr std::size_t longest = 60, longest_for_programs = 4096;

std::vector<Unlike> unlike(const Named& a, const Named& b) {
  const std::map<std::string, std::string> left(a.begin(), a.end()), right(b.begin(), b.end());
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (const auto& [name, value] : left) all[name].first = value;
  for (const auto& [name, value] : right) all[name].second = value;
  std::vector<Unlike> changes;
  for (const auto& [name, values] : all)
    if (values.first != values.second) changes.push_back({name, values.first, values.second});
  return changes;
}

Named recipe_of(const fs::path& folder) {
  Named named;
  for (const RecipeLine& line : recipe_lines_of(folder)) named.emplace_back(line.path(), line.value);
  return named;
}

Named versions_of(const fs::path& folder) {
  Named named;
  const std::string text = text_in(folder / "plugins.json");
  if (text.empty()) return named;
  try {
    const JsonValue plugins = parse_json(text, "plugins.json");
    for (const JsonValue& plugin : plugins.as_array())
      named.emplace_back(plugin.at("kind").as_string() + "." + plugin.at("name").as_string(),
                         plugin.at("version").as_string() + ", build " + plugin.at("build_id").as_string());
  } catch (const Error& error) {
    named.emplace_back("plugins.json", error.what());
  }
  return named;
}

Named plan_of(const RunLog& log) {
  if (!log.start()) return {};
  const LoggedStart& start = *log.start();
  return {{"device", start.device},
          {"parameters", std::to_string(start.parameters)},
          {"tokens a step", std::to_string(start.tokens_per_step)},
          {"FLOPs a token", number_word(start.flops_per_token)},
          {"bytes of the first rank's plan", std::to_string(start.plan_bytes)},
          {"ranks", log.finish ? std::to_string(log.finish->memory.size()) : ""}};
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// Returns the steps that both runs have, in the order of their numbers.
std::vector<std::pair<const LoggedStep*, const LoggedStep*>> common_steps(const RunLog& a, const RunLog& b) {
  std::vector<std::pair<const LoggedStep*, const LoggedStep*>> common;
  for (auto left = a.steps.begin(), right = b.steps.begin();
       left != a.steps.end() && right != b.steps.end();) {
    if (left->step == right->step) common.emplace_back(&*left, &*right);
    const std::int64_t number = std::min(left->step, right->step);
    left += left->step == number;
    right += right->step == number;
  }
  return common;
}

double apart(const RunDifference::Losses& losses) {
  const double by = std::abs(losses.first - losses.second);
  return std::isnan(by) ? std::numeric_limits<double>::infinity() : by;
}

void compare_losses(const RunLog& a, const RunLog& b, RunDifference& difference) {
  std::vector<RunDifference::Losses> common;
  for (const auto& [left, right] : common_steps(a, b))
    common.push_back({left->step, left->loss, right->loss});
  difference.common_steps = static_cast<std::int64_t>(common.size());
  const auto parts = std::find_if(common.begin(), common.end(),
                                  [](const auto& step) { return !same_bits(step.first, step.second); });
  if (parts == common.end()) return;
  const auto widest =
      std::max_element(parts, common.end(), [](const auto& x, const auto& y) { return apart(x) < apart(y); });
  difference.parting = {*parts, *widest, common.back()};
}

// ---------------------------------------------------------------- in words

std::string changes_text(const char* what, const std::vector<Unlike>& changes) {
  const auto shown = [](const std::string& value) {
    return value.empty() ? "nothing" : printable(value, longest);
  };
  std::vector<std::vector<std::string>> rows;
  for (const Unlike& change : changes)
    rows.push_back({"  " + printable(change.name, longest), shown(change.first), shown(change.second)});
  return rows.empty() ? std::string(what) + ": the same\n" : std::string(what) + ":\n" + columns_text(rows);
}

std::string losses_line(const char* what, const RunDifference::Losses& losses) {
  const double by = std::abs(losses.first - losses.second);
  return detail::concat("  ", what, " at step ", losses.step, ": ",
                        format("%.17g and %.17g, %.3g apart", losses.first, losses.second, by),
                        losses.first != 0 ? format(" (%.2g of it)", by / std::abs(losses.first)) : "", "\n");
}

std::string losses_text(const RunDifference& difference) {
  if (difference.common_steps == 0) return "losses: no step that both have\n";
  if (!difference.parting)
    return detail::concat("losses: the same bits in all ", difference.common_steps,
                          " steps that both have\n");
  const RunDifference::Parting& parting = *difference.parting;
  return detail::concat("losses: part in step ", parting.first.step, " of ", difference.common_steps,
                        " that both have\n") +
         losses_line("first", parting.first) + losses_line("most", parting.most) +
         losses_line("last", parting.last);
}

std::string speed_text(const RunDifference& difference) {
  std::vector<std::vector<std::string>> rows = {{"seconds a step", "first", "second", "second takes"}};
  for (const auto& [share, first, second] : difference.step_seconds)
    rows.push_back({"  quantile " + format("%.2f", share), format("%.6f", first), format("%.6f", second),
                    first > 0 ? format("%+.1f %%", 100 * (second / first - 1)) : std::string()});
  return columns_text(rows);
}

// ---------------------------------------------------------------- for programs

void write(JsonWriter& json, const char* name, const std::vector<Unlike>& changes) {
  json.name(name).begin_array();
  for (const Unlike& change : changes) {
    json.begin_object().member("name", printable(change.name, longest_for_programs));
    json.member("first", printable(change.first, longest_for_programs));
    json.member("second", printable(change.second, longest_for_programs)).end_object();
  }
  json.end_array();
}

void write(JsonWriter& json, const char* name, const RunDifference::Losses& losses) {
  json.name(name).begin_object().member("step", losses.step);
  json.member("first", losses.first).member("second", losses.second).end_object();
}

}  // namespace

RunDifference compare_runs(const fs::path& first, const fs::path& second) {
  const fs::path left = log_of(first), right = log_of(second);
  const RunLog a = read_log(left), b = read_log(right);
  RunDifference difference;
  difference.recipe = unlike(recipe_of(left.parent_path()), recipe_of(right.parent_path()));
  difference.versions = unlike(versions_of(left.parent_path()), versions_of(right.parent_path()));
  difference.plan = unlike(plan_of(a), plan_of(b));
  compare_losses(a, b, difference);
  for (const double share : {0.1, 0.5, 0.9, 0.99})
    difference.step_seconds.push_back({share, step_seconds_at(a, share), step_seconds_at(b, share)});
  const auto means_something = [](const Unlike& change) { return !belongs_to_a_place(change.name); };
  difference.differ = std::any_of(difference.recipe.begin(), difference.recipe.end(), means_something) ||
                      !difference.versions.empty() || !difference.plan.empty() || difference.parting;
  return difference;
}

std::string to_text(const RunDifference& difference) {
  return changes_text("recipe", difference.recipe) + changes_text("versions", difference.versions) +
         changes_text("plan", difference.plan) + losses_text(difference) + speed_text(difference);
}

std::string to_json(const RunDifference& difference) {
  JsonWriter json(NonFinite::write_null);
  json.begin_object().member("differ", difference.differ);
  write(json, "recipe", difference.recipe);
  write(json, "versions", difference.versions);
  write(json, "plan", difference.plan);
  json.member("common_steps", difference.common_steps);
  if (difference.parting) {
    json.name("losses_part").begin_object();
    write(json, "first", difference.parting->first);
    write(json, "most", difference.parting->most);
    write(json, "last", difference.parting->last);
    json.end_object();
  }
  json.name("step_seconds").begin_array();
  for (const auto& [share, a, b] : difference.step_seconds)
    json.begin_object().member("quantile", share).member("first", a).member("second", b).end_object();
  return json.end_array().end_object().take();
}

}  // namespace prun
