#include "search/settled_recipe.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "estimate/number_text.hpp"
#include "plugin/guarded_plugin.hpp"
#include "plugin/traits.hpp"
#include "prun/data.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- timed settings

TimedSetting setting_of(const recipe::Entry& entry) {
  TimedSetting setting{entry.path, std::get<std::string>(*entry.value), entry.option.choices};
  std::erase(setting.values, automatic);
  return setting;
}

void add_settings_of(const RecipeSection& strategy, PluginHost& plugins, std::vector<TimedSetting>& all) {
  const PluginNote& note = plugins.note("strategy", strategy.plugin());
  const std::string_view keys = trait_of(note, "timed");
  if (keys.empty()) return;
  for (const std::string_view item : split(keys, ',')) {
    const recipe::Entry* const entry = strategy.find(trim(item));
    const auto may_be_open = [](const std::vector<std::string>& choices) {
      return choices.size() > 1 && std::find(choices.begin(), choices.end(), automatic) != choices.end();
    };
    if (!entry || !entry->value || !may_be_open(entry->option.choices))
      throw_error(ErrorCode::bad_input, "strategy plugin '", note.name, "': its trait timed names ",
                  in_quotes(trim(item)),
                  ", and no option of that name has a default and is a choice with auto");
    all.push_back(setting_of(*entry));
  }
}

}  // namespace

std::vector<TimedSetting> timed_settings(const Recipe& recipe, PluginHost& plugins) {
  std::vector<TimedSetting> all = {setting_of(recipe.entry("batch.order"))};
  for (const RecipeSection& strategy : recipe.strategies()) add_settings_of(strategy, plugins, all);
  return all;
}

bool is_open(const TimedSetting& setting) { return setting.value == automatic; }

void RecipeVariant::settle(const TimedSetting& setting, const std::string& value) {
  recipe = recipe.with(setting.path, value);
  settled.push_back(setting.path + "=" + value);
}

std::vector<RecipeVariant> variants_of(const Recipe& recipe, PluginHost& plugins) {
  std::vector<RecipeVariant> variants = {{recipe}};
  for (const TimedSetting& setting : timed_settings(recipe, plugins)) {
    if (!is_open(setting)) continue;
    std::vector<RecipeVariant> longer;
    for (const RecipeVariant& variant : variants)
      for (const std::string& value : setting.values) longer.emplace_back(variant).settle(setting, value);
    variants = std::move(longer);
  }
  return variants;
}

namespace {

// ------------------------------------------------------------------- quickest

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

namespace {

// ------------------------------------------------------------------- resumed settings

std::optional<std::string> value_before(const Settings& before, const TimedSetting& setting) {
  for (const std::string& value : setting.values)
    if (std::find(before.begin(), before.end(),
                  std::pair(setting.path, recipe::to_toml(recipe::Value(value)))) != before.end())
      return value;
  return {};
}

bool is_refused(const Recipe& recipe, PluginHost& plugins) {
  try {
    const Assembly assembly(recipe, plugins);
    return false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    return true;
  }
}

}  // namespace

RecipeVariant settled_as_before(const Recipe& recipe, PluginHost& plugins) {
  RecipeVariant variant{recipe};
  std::vector<TimedSetting> open = timed_settings(recipe, plugins);
  std::erase_if(open, [](const TimedSetting& setting) { return !is_open(setting); });
  const std::string& resume = recipe.text("run.resume");
  if (open.empty() || resume.empty()) return variant;
  const std::optional<Manifest> manifest = manifest_to_go_on_from(resume);
  if (!manifest) return variant;
  for (const TimedSetting& setting : open)
    if (const auto value = value_before(manifest->recipe, setting)) variant.settle(setting, *value);
  if (!variant.settled.empty() && is_refused(variant.recipe, plugins)) return {recipe};
  return variant;
}

// ------------------------------------------------------------------- run length

RunLength with_run_length(const Recipe& recipe, PluginHost& plugins) {
  const double epochs = recipe.number("run.epochs");
  if (epochs == 0) return {recipe, ""};
  if (!recipe.sections("data.blend").empty())
    throw_error(
        ErrorCode::bad_input,
        "cannot apply run.epochs with [[data.blend]], whose sets each have epochs; set run.steps instead");
  const RecipeSection section = recipe.section("data");
  DataInfo info;
  const OpenedUnsaid to_count;
  recipe::in_section(section, [&] {
    raise(plugins.create<DataInterface>("data", section)->open(text_of_sample(recipe), &info));
  });
  const double held_out = std::ceil(recipe.number("data.validation") * static_cast<double>(info.samples));
  const double samples = static_cast<double>(info.samples) - held_out;
  const BatchRamp ramp = BatchRamp::of(recipe);
  const std::int64_t global = recipe.integer("batch.global"),
                     steps = ramp.steps_for(static_cast<std::int64_t>(std::ceil(epochs * samples - 1e-6)));
  const std::int64_t length = std::clamp<std::int64_t>(steps, 1, recipe.integer("run.steps"));
  return {recipe.with("run.steps", std::to_string(length)).with("run.epochs", "0"),
          format("run.epochs = %g of %.0f samples are %lld steps of %s%lld%s", epochs, samples,
                 static_cast<long long>(steps), ramp.rungs().empty() ? "" : "at last ",
                 static_cast<long long>(global), length < steps ? ", and run.steps ends it before" : "")};
}

// ------------------------------------------------------------------- settled recipe

SettledRecipe settle(const Recipe& recipe, PluginHost& plugins,
                     const std::optional<std::filesystem::path>& costs) {
  RunLength length = with_run_length(recipe, plugins);
  const RecipeVariant before = settled_as_before(length.recipe, plugins);
  Quickest quickest = choose_quickest(before.recipe, plugins, costs);
  SettledRecipe settled{std::move(quickest.recipe), {}};
  if (!length.said.empty()) settled.said.push_back(length.said);
  if (!quickest.said.empty()) settled.said.push_back(quickest.said);
  if (!before.settled.empty()) settled.said.push_back(before.said() + ", as in the run that goes on");
  return settled;
}

}  // namespace prun
