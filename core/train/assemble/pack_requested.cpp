#include "train/assemble/pack_requested.hpp"

#include "placement/pack.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

void check_sums_in_update(PluginHost& plugins, const Optimizers& optimizers) {
  for (const NamedOptimizer& optimizer : optimizers)
    if (optimizer.sums_in_update) return;
  std::string known;
  for (const PluginNote& note : plugins.notes_with("optimizer", "sums", "update"))
    known += (known.empty() ? "" : ", ") + note.name;
  throw_error(ErrorCode::unsupported,
              "precision.reduce is \"1bit\", in which ranks sum what an optimizer makes of gradients, and '",
              optimizers.front().name, "' takes their sum; take an optimizer whose note says sums=update (",
              known, "), or a type that numbers are summed in, such as \"bf16\"");
}

// Checks codes: only what ranks keep in parts travels in codes.
void check_codes(const Program& program, const Recipe& recipe, PluginHost& plugins,
                 const Optimizers& optimizers) {
  const Precision& precision = program.precision();
  bool gathers = false;
  for (const PartsRequest& parts : program.requests().parts) gathers |= parts.kept.parameters;
  if (precision.gather_bits > 0 && !gathers)
    throw_error(
        ErrorCode::unsupported, "precision.gather is \"", recipe.text("precision.gather"),
        "\", and no strategy keeps parameters in parts, so that none are gathered; add strategy zero with "
        "stage = 3, or leave the key out");
  if (precision.reduce_bits == 1 && !program.requests().parts.empty())
    throw_error(
        ErrorCode::unsupported,
        "precision.reduce is \"1bit\", with which every rank has all of the optimizer's state and a gradient "
        "of "
        "its own, and a strategy keeps some of that in parts; leave out strategy zero (stage = 0), or choose "
        "\"int8\" or \"int4\"");
  if (precision.reduce_bits == 1) check_sums_in_update(plugins, optimizers);
  if (precision.reduce_bits > 1 && program.requests().parts.empty())
    throw_error(
        ErrorCode::unsupported, "precision.reduce is \"", recipe.text("precision.reduce"),
        "\", in which gradients are summed in parts, and no strategy keeps state in parts; add strategy zero "
        "with stage = 1, 2 or 3, or choose a type that numbers are summed in, such as \"bf16\"");
}

// Returns the strategy whose request this is.
std::optional<RecipeSection> keeper_of(const Program& program, const Recipe& recipe, PluginHost& plugins,
                                       const PartsRequest& parts) {
  std::vector<std::string> names;
  for (const AxisId axis : parts.axes)
    if (const std::string name = program.mesh().name(axis); name.find('.') == std::string::npos)
      names.push_back(name);
  for (const RecipeSection& section : recipe.strategies())
    if (works_in(Phase::state, plugins.note("strategy", section.plugin())) && axes_named(section) == names)
      return section;
  return {};
}

}  // namespace

void pack_requested(Program& program, const Recipe& recipe, PluginHost& plugins, const Optimizers& optimizers,
                    const std::optional<PipelineLayout>& pipeline, std::int64_t accumulate, Purpose purpose) {
  if (purpose == Purpose::training) check_codes(program, recipe, plugins, optimizers);
  if (purpose == Purpose::training && program.precision().reduce_bits == 1)
    pack_summands(program, optimizers, accumulate);
  if (pipeline) check_parts(program, *pipeline);
  for (const PartsRequest& parts : program.requests().parts) {
    for (const NamedOptimizer& optimizer : optimizers)
      if (optimizer.unit == UpdateUnit::unknown)
        throw_error(
            ErrorCode::unsupported, "optimizer plugin '", optimizer.name,
            "' does not say that it treats elements alike (trait elementwise=yes), or updates whole tensors "
            "(trait whole=tensors), so its state cannot be kept in parts; leave out the strategy that keeps "
            "it so, or choose an optimizer that says it");
    const std::optional<RecipeSection> keeper = keeper_of(program, recipe, plugins, parts);
    if (keeper) check_parts_axes(recipe, *keeper);
    pack_state(program, optimizers, parts);
  }
}

}  // namespace prun
