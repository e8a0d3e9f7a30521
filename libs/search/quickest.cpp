#include "search/quickest.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "estimate/number_text.hpp"

namespace prun {
namespace {

// Holds the result of a way: a time, or why there is none.
struct TimedVariant {
  RecipeVariant variant;
  std::optional<double> step_seconds;
  std::string missing, refused;
};

TimedVariant tried(RecipeVariant variant, PluginHost& plugins,
                   const std::optional<std::filesystem::path>& costs) {
  std::optional<Assembly> assembly;
  try {
    assembly.emplace(variant.recipe, plugins);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    return {std::move(variant), {}, "", std::string(first_line(error.what()))};
  }
  const Forecast forecast = prun::forecast(*assembly, plugins, costs, RatesUse::forbidden);
  if (!forecast.prediction) return {std::move(variant), {}, forecast.missing, ""};
  const double full = forecast.prediction->simulation.step_seconds;
  return {std::move(variant), forecast.period ? forecast.period->mean.value_or(full) : full, "", ""};
}

constexpr double rounding = 1e-9;  // rounding of a sum of times: no gain

// Returns the quickest, or the first that is not refused if not all of them have a time.
const TimedVariant& chosen_of(const std::vector<TimedVariant>& all) {
  const auto fits = [](const TimedVariant& one) { return one.refused.empty(); };
  auto chosen = std::find_if(all.begin(), all.end(), fits);
  if (chosen == all.end()) return all.front();
  if (std::any_of(all.begin(), all.end(),
                  [&](const TimedVariant& one) { return fits(one) && !one.step_seconds; }))
    return *chosen;
  for (auto one = chosen; one != all.end(); ++one)
    if (fits(*one) && *one->step_seconds < *chosen->step_seconds * (1 - rounding)) chosen = one;
  return *chosen;
}

std::string outcome_of(const TimedVariant& one) {
  if (!one.refused.empty()) return "refused: " + one.refused;
  return one.step_seconds ? time_text(*one.step_seconds) + " a step predicted" : one.missing;
}

}  // namespace

Quickest choose_quickest(const Recipe& recipe, PluginHost& plugins,
                         const std::optional<std::filesystem::path>& costs) {
  std::vector<RecipeVariant> variants = variants_of(recipe, plugins);
  if (variants.front().settled.empty()) return {recipe, ""};
  std::vector<TimedVariant> all;
  for (RecipeVariant& variant : variants) all.push_back(tried(std::move(variant), plugins, costs));
  const TimedVariant& chosen = chosen_of(all);
  std::string said = chosen.variant.said() + " (" + outcome_of(chosen);
  for (const TimedVariant& one : all)
    if (&one != &chosen) said += "; " + one.variant.said() + ": " + outcome_of(one);
  return {chosen.variant.recipe, said + ")"};
}

}  // namespace prun
