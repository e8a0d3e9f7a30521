#include "train/assemble/parameter_groups.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {

namespace {

bool takes(const RecipeSection& group, const Value& value, const std::string& name) {
  const std::string& of = group.text("of");
  const bool matrix = value.matrices.columns > 0;
  return (of == "all" || (of == "matrices") == matrix) && glob_match(group.text("match"), name);
}

// By [optimizer] where the group names none.
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

// The first group whose pattern matches a parameter's name ("block.qkv.weight") decides.
void apply_groups(const Recipe& recipe, Program& program) {
  const std::vector<RecipeSection> groups = recipe.sections("optimizer.group");
  std::vector<bool> used(groups.size(), false);
  for (Id id : program.parameters()) {
    Value& value = program.value(id);
    const std::string name = program.segment(value.segment).name + "." + value.name;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!takes(groups[g], value, name)) continue;
      used[g] = true;
      value.optimizer = optimizer_of(groups, g);
      value.frozen = value.untrained || groups[g].flag("frozen");
      value.lr_scale = groups[g].number("lr_scale");
      // One that is only the plugin's default leaves alone what has no decay.
      if (groups[g].has("weight_decay") && groups[g].entry("weight_decay").at.source) {
        value.weight_decay = groups[g].number("weight_decay");
        value.decay = value.weight_decay > 0;
      }
      break;
    }
  }
  Diagnostics problems;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (!used[g]) problems.add(recipe.problem(groups[g].path() + ".match", no_match(groups[g])));
  problems.throw_if_any();
}

}  // namespace prun
