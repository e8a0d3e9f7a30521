#include "runs/diff.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "runs/log.hpp"
#include "runs/recipe_lines.hpp"
#include "runs/text_file.hpp"
#include "runs/time_account.hpp"
#include "runs/words.hpp"
#include "train/settings.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

using Named = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t longest = 60;

// What of two lists is not the same, a row each; `counts` says whether a difference of that name is one.
template <class Counts>
std::string differences(const char* what, const Named& a, const Named& b, Counts&& counts, bool* differ) {
  const std::map<std::string, std::string> left(a.begin(), a.end()), right(b.begin(), b.end());
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (const auto& [name, value] : left) all[name].first = value;
  for (const auto& [name, value] : right) all[name].second = value;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, values] : all) {
    if (values.first == values.second) continue;
    *differ = *differ || counts(name);
    const auto shown = [](const std::string& value) {
      return value.empty() ? "nothing" : printable(value, longest);
    };
    rows.push_back({"  " + printable(name, longest), shown(values.first), shown(values.second)});
  }
  return rows.empty() ? std::string(what) + ": the same\n" : std::string(what) + ":\n" + columns_text(rows);
}

bool every(const std::string&) { return true; }

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

// Steps that both have, in the order of their numbers.
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

std::string apart(const LoggedStep& a, const LoggedStep& b) {
  return format("%.17g and %.17g, %.3g apart", a.loss, b.loss, std::abs(a.loss - b.loss)) +
         (a.loss != 0 ? format(" (%.2g of it)", std::abs(a.loss - b.loss) / std::abs(a.loss)) : "");
}

std::string losses_text(const RunLog& a, const RunLog& b, bool* differ) {
  const auto common = common_steps(a, b);
  if (common.empty()) return "losses: no step that both have\n";
  const auto parts = std::find_if(common.begin(), common.end(), [](const auto& step) {
    return !same_bits(step.first->loss, step.second->loss);
  });
  if (parts == common.end())
    return detail::concat("losses: the same bits in all ", common.size(), " steps that both have\n");
  *differ = true;
  const auto distance = [](const auto& step) {
    const double by = std::abs(step.first->loss - step.second->loss);
    return std::isnan(by) ? std::numeric_limits<double>::infinity() : by;
  };
  const auto widest = std::max_element(
      parts, common.end(), [&](const auto& x, const auto& y) { return distance(x) < distance(y); });
  const auto line = [](const char* what, const auto& step) {
    return detail::concat("  ", what, " at step ", step.first->step, ": ", apart(*step.first, *step.second),
                          "\n");
  };
  return detail::concat("losses: part in step ", parts->first->step, " of ", common.size(),
                        " that both have\n") +
         line("first", *parts) + line("most", *widest) + line("last", common.back());
}

std::string speed_text(const RunLog& a, const RunLog& b) {
  std::vector<std::vector<std::string>> rows = {{"seconds a step", "first", "second", "second takes"}};
  for (const double share : {0.1, 0.5, 0.9, 0.99}) {
    const double left = step_seconds_at(a, share), right = step_seconds_at(b, share);
    rows.push_back({"  quantile " + format("%.2f", share), format("%.6f", left), format("%.6f", right),
                    left > 0 ? format("%+.1f %%", 100 * (right / left - 1)) : std::string()});
  }
  return columns_text(rows);
}

}  // namespace

RunDifference compare_runs(const fs::path& first, const fs::path& second) {
  const fs::path left = log_of(first), right = log_of(second);
  const RunLog a = read_log(left), b = read_log(right);
  RunDifference difference;
  bool* differ = &difference.differ;
  const auto means_something = [](const std::string& key) { return !belongs_to_a_place(key); };
  difference.text = differences("recipe", recipe_of(left.parent_path()), recipe_of(right.parent_path()),
                                means_something, differ) +
                    differences("versions", versions_of(left.parent_path()), versions_of(right.parent_path()),
                                every, differ) +
                    differences("plan", plan_of(a), plan_of(b), every, differ) + losses_text(a, b, differ) +
                    speed_text(a, b);
  return difference;
}

}  // namespace prun
