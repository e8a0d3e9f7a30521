#include "runs/diff.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "cli/command_table.hpp"
#include "recipe/recipe.hpp"
#include "runs/log.hpp"
#include "runs/words.hpp"
#include "train/checkpoint/manifest.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- recipe lines

// Returns where the comment begins: the first '#' that is in no text.
std::size_t comment_of(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\')
      ++i;
    else if (quote != 0)
      quote = line[i] == quote ? '\0' : quote;
    else if (line[i] == '"' || line[i] == '\'')
      quote = line[i];
    else if (line[i] == '#')
      return i;
  }
  return line.size();
}

RecipeLine with_new_name(RecipeLine line) {
  const std::string old = line.path();
  const auto [path, value] = recipe::stored_setting(old, line.value);
  line.key = path.substr(old.size() - line.key.size());  // a key stays in its section
  line.value = value;
  return line;
}

constexpr auto no_line = static_cast<std::size_t>(-1);

// Returns lines by the names that keys have now; those of what a strategy has now are in its section, behind
// the others, and in no line of the text.
std::vector<RecipeLine> with_new_names(const std::vector<RecipeLine>& lines) {
  recipe::StoredSettings stored;
  std::map<std::string, RecipeLine> renamed;
  for (const RecipeLine& line : lines) {
    stored.emplace_back(line.path(), line.value);
    RecipeLine now = with_new_name(line);
    renamed.insert_or_assign(now.path(), std::move(now));
  }
  std::vector<RecipeLine> now;
  for (const auto& [path, value] : recipe::stored_settings(stored)) {
    const auto found = renamed.find(path);
    if (found != renamed.end()) {
      now.push_back(found->second);
      continue;
    }
    const std::vector<std::string_view> parts = split(path, '.');  // strategy, number, key
    now.push_back(
        {"[[strategy]]", std::stoul(std::string(parts.at(1))), std::string(parts.at(2)), value, "", no_line});
  }
  return now;
}

}  // namespace

std::string RecipeLine::path() const {
  if (section.size() < 4) return key;
  const bool list = section[1] == '[';
  const std::size_t edge = list ? 2 : 1;
  const std::string name = section.substr(edge, section.size() - 2 * edge);
  return name + (list ? "." + std::to_string(item) : std::string()) + "." + key;
}

std::vector<RecipeLine> recipe_lines(std::string_view text) {
  std::vector<RecipeLine> lines;
  std::string section;
  std::map<std::string, std::size_t> items;
  const std::vector<std::string_view> all = split(text, '\n');
  for (std::size_t number = 0; number < all.size(); ++number) {
    const std::string_view line = all[number];
    if (line.empty()) continue;
    const std::size_t comment = comment_of(line), equals = line.find(" = ");
    if (line.front() == '[')
      ++items[section = trim(line.substr(0, comment))];
    else if (equals < comment)
      lines.push_back({section, items[section] - 1, std::string(line.substr(0, equals)),
                       std::string(trim(line.substr(equals + 3, comment - equals - 3))),
                       std::string(trim(line.substr(std::min(line.size(), comment + 1)))), number});
  }
  return lines;
}

std::vector<RecipeLine> recipe_lines_of(const std::filesystem::path& run_folder) {
  return with_new_names(recipe_lines(text_in(run_folder / "recipe.toml")));
}

std::string recipe_text_of(const std::filesystem::path& run_folder) {
  const std::string text = whole_file(run_folder / "recipe.toml", most_text);
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  std::map<std::size_t, RecipeLine> old;
  for (const RecipeLine& line : recipe_lines(text)) old.emplace(line.number, line);
  std::vector<RecipeLine> list;
  for (const auto& [number, line] : old) list.push_back(line);
  std::size_t item = no_line;  // of the last section that was added
  for (const RecipeLine& now : with_new_names(list)) {
    if (now.number == no_line) {
      if (std::exchange(item, now.item) != now.item) lines.push_back(now.section);
      lines.push_back(now.key + " = " + now.value);
      continue;
    }
    const auto before = old.extract(now.number);
    if (before.empty()) continue;  // two old names of one key
    if (now.key != before.mapped().key || now.value != before.mapped().value)
      lines[now.number] = now.key + " = " + now.value;
  }
  for (const auto& [number, line] : old) lines[number].clear();  // what is in no section any more
  return join(lines, "\n");
}

namespace {

// ------------------------------------------------------------------- diff

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

namespace {

// ------------------------------------------------------------------- diff verb
// Implements prun diff: it shows in what two runs differ.

int diff_command(const Arguments& arguments) {
  const RunDifference difference = compare_runs(arguments.words[0], arguments.words[1]);
  const std::string text = arguments.has("--json") ? to_json(difference) + "\n" : to_text(difference);
  std::fputs(text.c_str(), stdout);
  return difference.differ ? 1 : 0;
}

}  // namespace

std::vector<Command> diff_verb() {
  return {{"diff",
           "RUN RUN",
           "what differs: recipe, versions, plan, from which step on losses part, speed",
           {json_option},
           diff_command}};
}

}  // namespace prun
