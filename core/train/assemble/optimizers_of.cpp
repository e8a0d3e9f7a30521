#include "train/assemble/optimizers_of.hpp"

#include "plugin/traits.hpp"
#include "program/averaged_optimizer.hpp"
#include "train/assemble/parameter_groups.hpp"

namespace prun {
namespace {

NamedOptimizer optimizer_of(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section) {
  const PluginNote& note = plugins.note("optimizer", section.plugin());
  const std::string_view whole = trait_of(note, "whole");
  const UpdateUnit unit = whole == "matrices"                      ? UpdateUnit::matrix
                          : whole == "tensors"                     ? UpdateUnit::tensor
                          : trait_of(note, "elementwise") == "yes" ? UpdateUnit::element
                                                                   : UpdateUnit::unknown;
  std::shared_ptr<OptimizerInterface> optimizer = plugins.create<OptimizerInterface>("optimizer", section);
  if (const double decay = recipe.number("optimizer.average"); decay > 0)
    optimizer = std::make_shared<AveragedOptimizer>(std::move(optimizer), decay);
  return {section.plugin(), unit, std::move(optimizer), trait_of(note, "sums") == "update"};
}

}  // namespace

Optimizers optimizers_of(const Recipe& recipe, PluginHost& plugins) {
  Optimizers optimizers = {optimizer_of(recipe, plugins, recipe.section("optimizer"))};
  for (const RecipeSection& group : groups_with_optimizers(recipe))
    optimizers.push_back(optimizer_of(recipe, plugins, group));
  return optimizers;
}

}  // namespace prun
