#include "train/assemble/quickest.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/text.hpp"
#include "train/assemble/forecast.hpp"

namespace prun {
namespace {

// What became of a way: a time, or why there is none.
struct TimedWay {
  RecipeWay way;
  std::optional<double> step_seconds;
  std::string missing, refused;
};

TimedWay tried(RecipeWay way, PluginHost& plugins, const std::optional<std::filesystem::path>& costs) {
  std::optional<Assembly> assembly;
  try {
    assembly.emplace(way.recipe, plugins);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    return {std::move(way), {}, "", std::string(first_line(error.what()))};
  }
  const Forecast forecast = prun::forecast(*assembly, plugins, costs, RatesUse::forbidden);
  if (!forecast.prediction) return {std::move(way), {}, forecast.missing, ""};
  return {std::move(way), forecast.prediction->simulation.step_seconds, "", ""};
}

constexpr double rounding = 1e-9;  // of a sum of times: no gain

// The quickest, or the first that is not refused where not all of them have a time.
const TimedWay& chosen_of(const std::vector<TimedWay>& all) {
  const auto fits = [](const TimedWay& one) { return one.refused.empty(); };
  auto chosen = std::find_if(all.begin(), all.end(), fits);
  if (chosen == all.end()) return all.front();
  if (std::any_of(all.begin(), all.end(),
                  [&](const TimedWay& one) { return fits(one) && !one.step_seconds; }))
    return *chosen;
  for (auto one = chosen; one != all.end(); ++one)
    if (fits(*one) && *one->step_seconds < *chosen->step_seconds * (1 - rounding)) chosen = one;
  return *chosen;
}

std::string outcome_of(const TimedWay& one) {
  if (!one.refused.empty()) return "refused: " + one.refused;
  return one.step_seconds ? format("%.3f ms a step predicted", *one.step_seconds * 1e3) : one.missing;
}

}  // namespace

Quickest choose_quickest(const Recipe& recipe, PluginHost& plugins,
                         const std::optional<std::filesystem::path>& costs) {
  std::vector<RecipeWay> ways = ways_of(recipe, plugins);
  if (ways.front().settled.empty()) return {recipe, ""};
  std::vector<TimedWay> all;
  for (RecipeWay& way : ways) all.push_back(tried(std::move(way), plugins, costs));
  const TimedWay& chosen = chosen_of(all);
  std::string said = chosen.way.said() + " (" + outcome_of(chosen);
  for (const TimedWay& one : all)
    if (&one != &chosen) said += "; " + one.way.said() + ": " + outcome_of(one);
  return {chosen.way.recipe, said + ")"};
}

}  // namespace prun
