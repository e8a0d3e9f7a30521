#include "train/assemble/parameter_groups.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- parameter groups

bool takes(const RecipeSection& group, const Value& value, const std::string& name) {
  const std::string& of = group.text("of");
  const bool matrix = value.matrices.columns > 0;
  return (of == "all" || (of == "matrices") == matrix) && glob_match(group.text("match"), name);
}

// Returns the group's optimizer, or [optimizer]'s number if the group names none.
std::int32_t optimizer_of(const std::vector<RecipeSection>& groups, std::size_t group) {
  if (groups[group].plugin().empty()) return 0;
  return 1 + static_cast<std::int32_t>(
                 std::count_if(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(group),
                               [](const RecipeSection& before) { return !before.plugin().empty(); }));
}

std::string no_match(const RecipeSection& group) {
  const std::string& of = group.text("of");
  return "no parameter" +
         std::string(of == "all"        ? "'s name matches "
                     : of == "matrices" ? " that is made of matrices matches "
                                        : " that is not made of matrices matches ") +
         in_quotes(group.text("match"));
}

}  // namespace

std::vector<RecipeSection> groups_with_optimizers(const Recipe& recipe) {
  std::vector<RecipeSection> groups = recipe.sections("optimizer.group");
  std::erase_if(groups, [](const RecipeSection& group) { return group.plugin().empty(); });
  return groups;
}

void ParameterGroups::apply(Program& program) {
  for (const Id id : program.parameters())
    if (Value& value = program.value(id); done_.insert(id).second)
      apply(value, program.segment(value.segment).name + "." + value.name);
}

void ParameterGroups::apply(Value& value, const std::string& name) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const RecipeSection& group = groups_[g];
    if (!takes(group, value, name)) continue;
    used_[g] = true;
    value.optimizer = optimizer_of(groups_, g);
    value.frozen = value.frozen || value.untrained || group.flag("frozen");
    value.lr_scale *= group.number("lr_scale");
    // A decay that is only the plugin's default does not apply to parameters without decay.
    if (group.has("weight_decay") && group.entry("weight_decay").at.source) {
      value.weight_decay = group.number("weight_decay");
      value.decay = value.weight_decay > 0;
    }
    return;
  }
}

void ParameterGroups::check_used() const {
  Diagnostics problems;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (!used_[g]) problems.add(recipe_.problem(groups_[g].path() + ".match", no_match(groups_[g])));
  problems.throw_if_any();
}

// ------------------------------------------------------------------- purpose

// Checks that the model can make text: token by token, each from those before it.
void check_makes_text(const Recipe& recipe, PluginHost& plugins, Purpose purpose) {
  if (!makes_text(purpose)) return;
  const std::string& model = recipe.section("model").plugin();
  const PluginNote& note = plugins.note("model", model);
  const std::string_view predicted = trait_of(note, "predicts");
  if (predicted == "masked")
    throw_error(ErrorCode::unsupported, "cannot generate text with model '", model,
                "': it predicts masked tokens, not the next one");
  if (predicted == "spans" && trait_of(note, "inputs").empty())
    throw_error(ErrorCode::unsupported, "cannot generate text with model '", model,
                "': it has an encoder and no trait inputs, which names the option with its number of tokens");
}

}  // namespace prun
