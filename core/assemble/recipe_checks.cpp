#include "assemble/recipe_checks.hpp"

#include <algorithm>

#include "assemble/batch_arithmetic.hpp"
#include "assemble/program_writer.hpp"
#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

// One of the patterns in "tensor,zb-*".
bool any_matches(std::string_view patterns, std::string_view text) {
  for (const std::string_view pattern : split(patterns, ','))
    if (glob_match(trim(pattern), text)) return true;
  return false;
}

void check_batch(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  const std::int64_t global = recipe.integer("batch.global"),
                     ranks = BatchArithmetic::of(recipe, plugins).ranks,
                     at_once = recipe.integer("batch.micro") * ranks;
  if (global % at_once == 0 || recipe.flag("batch.pad")) return;
  const std::int64_t below = global / at_once * at_once, above = below + at_once;
  const std::string times = ranks > 1 ? detail::concat(" x ", ranks, " data-parallel ranks = ", at_once) : "";
  problems.add(recipe.problem(
      "batch.global",
      detail::concat("batch.global = ", global,
                     " is not a multiple of batch.micro = ", recipe.integer("batch.micro"), times,
                     "; the nearest that are: ", below > 0 ? detail::concat(below, " and ") : "", above,
                     "; or set batch.pad = true")));
}

// An axis that nobody uses would only do the same work several times.
void check_mesh(const Recipe& recipe, Diagnostics& problems) {
  const Mesh mesh = mesh_of(recipe);
  const std::vector<RecipeSection> strategies = recipe.strategies();
  std::vector<std::string> known;
  for (const Axis& axis : mesh.axes()) {
    known.push_back(axis.name);
    const bool used = std::any_of(strategies.begin(), strategies.end(), [&](const RecipeSection& section) {
      return axis_of(section) == axis.name;
    });
    if (!used && axis.extent > 1)
      problems.add(recipe.problem(
          "mesh." + axis.name,
          detail::concat("no strategy uses the axis '", axis.name,
                         "'; add one, such as [[strategy]] plugin = \"data\", axis = \"", axis.name, "\"")));
  }
  for (const RecipeSection& section : strategies)
    if (const std::optional<std::string> axis = axis_of(section); axis && mesh.find(*axis) == no_axis)
      problems.add(recipe.problem(section.path() + ".axis",
                                  detail::concat("the mesh has no axis '", *axis, "'",
                                                 did_you_mean(*axis, known), "; add it to [mesh]")));
}

void check_strategies(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  for (const RecipeSection& section : recipe.strategies()) {
    const recipe::Entry* const axis = section.find("axis");
    if (axis && axis->value && !axis_of(section))
      problems.add(recipe.problem(
          section.path() + ".plugin",
          detail::concat("strategy plugin '", section.plugin(), "' declares its option 'axis' as ",
                         recipe::name_of(axis->option.type), "; a mesh axis is named by a string")));
    const std::string_view conflicts = trait_of(plugins.note("strategy", section.plugin()), "conflicts");
    for (const RecipeSection& other : recipe.strategies())
      if (any_matches(conflicts, other.plugin()))
        problems.add(recipe.problem(
            section.path() + ".plugin",
            detail::concat("strategy '", section.plugin(), "' does not go with '", other.plugin(), "'")));
  }
}

}  // namespace

// Each value is in its range by now; what is left is what several of them mean together.
void check_combinations(const Recipe& recipe, PluginHost& plugins) {
  Diagnostics problems;
  const Precision precision = precision_of(recipe);
  if (size_of(precision.state) < size_of(precision.compute))
    problems.add(recipe.problem("precision.state",
                                "precision.state is narrower than precision.compute; state = \"fp64\" fits"));
  check_strategies(recipe, plugins, problems);
  check_mesh(recipe, problems);
  check_batch(recipe, plugins, problems);
  problems.throw_if_any();
}

}  // namespace prun
