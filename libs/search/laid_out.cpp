#include "search/laid_out.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/number_text.hpp"
#include "recipe/schema.hpp"
#include "recipe/toml_writer.hpp"
#include "search/tune.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- laid out

// Ranks that this process starts learn the layout by this variable: lines as --set takes them.
constexpr const char* chosen_layout_variable = "PRUN_CHOSEN_LAYOUT";
constexpr const char* layout_is_given = "run.layout=recipe";

Recipe with_layout(Recipe recipe, std::vector<std::string> sets) {
  sets.emplace_back(layout_is_given);
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    recipe = recipe.with(set.substr(0, equals), set.substr(equals + 1));
  }
  return recipe;
}

bool is_of_layout(std::string_view key) {
  const std::vector<VariedOption>& keys = varied_keys();
  return key.starts_with("strategy.") || key == "batch.micro" ||
         std::any_of(keys.begin(), keys.end(), [&](const VariedOption& one) { return one.key == key; });
}

// Adds the mesh "dp=2 tp=2" in its order.
void add_mesh(std::string_view mesh, std::vector<std::string>& sets) {
  for (const std::string_view axis : split(mesh, ' '))
    if (!axis.empty()) sets.push_back("mesh." + std::string(axis));
}

// Returns the bare text if the value is a text.
std::string bare(const std::string& toml) {
  const std::optional<recipe::Value> value = recipe::value_of_toml(toml);
  const auto* const text = value ? std::get_if<std::string>(&*value) : nullptr;
  return text ? *text : toml;
}

// Returns nothing if the checkpoint is of another number of ranks, or the recipe no longer allows its layout.
std::optional<Recipe> as_before(const Recipe& recipe, PluginHost& plugins, std::int64_t ranks) {
  const std::string& resume = recipe.text("run.resume");
  if (resume.empty()) return {};
  const std::optional<Manifest> manifest = manifest_to_go_on_from(resume);
  if (!manifest) return {};
  std::vector<std::string> sets;
  add_mesh(manifest->mesh, sets);
  for (const auto& [key, value] : manifest->recipe)
    if (is_of_layout(key)) sets.push_back(key + "=" + bare(value));
  try {
    Recipe before = with_layout(recipe, sets);
    if (mesh_of(before).world() != ranks) return {};
    const Assembly assembly(before, plugins);
    return before;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    return {};
  }
}

}  // namespace

bool leaves_layout_open(const Recipe& recipe) { return recipe.text("run.layout") == automatic; }

std::int64_t ranks_asked_for(const Recipe& recipe) {
  const std::int64_t said = leaves_layout_open(recipe) ? recipe.integer("run.ranks") : 0;
  return said > 0 ? said : mesh_of(recipe).world();
}

LaidOutRecipe lay_out(const Recipe& recipe, PluginHost& plugins,
                      const std::optional<std::filesystem::path>& costs,
                      const std::optional<Identity>& rank) {
  if (!leaves_layout_open(recipe)) return {recipe, ""};
  const char* const told = std::getenv(chosen_layout_variable);
  if (rank && rank->how == "prun" && told) {
    std::vector<std::string> sets;
    for (const std::string_view line : split(told, '\n')) sets.emplace_back(line);
    return {with_layout(recipe, sets), ""};
  }
  TuneRequest request;
  request.scope.ranks = rank ? rank->world : recipe.integer("run.ranks");
  request.why = false;
  const std::int64_t ranks = ranks_to_tune(recipe, plugins, request.scope);
  if (std::optional<Recipe> before = as_before(recipe, plugins, ranks))
    return {*before, "layout as in the run that goes on"};
  const KnownCosts known = known_costs(costs);
  const TuneResult result = tune(recipe, plugins, known.table, request);
  const TunedCandidate& best = result.best.front();
  if (!rank) ::setenv(chosen_layout_variable, join(best.sets, "\n").c_str(), 1);
  return {with_layout(recipe, best.sets),
          detail::concat("layout ", best.text, " (", time_text(best.planned.step_seconds),
                         " a step predicted, of ", result.looked_at, " looked at and ", result.planned,
                         " planned)")};
}

// ------------------------------------------------------------------- recipe text

std::string toml_without(const Recipe& recipe, std::string_view left_out,
                         const std::function<std::string(const recipe::Entry&)>& comment) {
  recipe::TomlWriter out;
  for (const recipe::SectionRule& rule : recipe::core_sections())
    if (rule.list && rule.at_least_one && recipe.sections(rule.name).empty()) out.empty_list(rule.name);
  for (const RecipeSection& section : recipe.all_sections()) {
    if (section.name() == left_out || section.path() == left_out) continue;
    bool begun = false;
    for (const recipe::Entry& entry : section.entries()) {
      if (!entry.value) continue;
      // A group's default means less than the same value written out: a decay that is written applies to
      // norms too.
      if (section.name() == "optimizer.group" && !entry.at.source) continue;
      if (!std::exchange(begun, true))
        section.label().starts_with("[[") ? out.item(section.name()) : out.table(section.path());
      out.value(entry.key, *entry.value, comment(entry));
    }
  }
  return out.text();
}

}  // namespace prun
