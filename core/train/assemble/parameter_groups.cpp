#include "train/assemble/parameter_groups.hpp"

#include "base/text.hpp"

namespace prun {

// The first group whose pattern matches a parameter's name ("block.qkv.weight") decides.
void apply_groups(const Recipe& recipe, Program& program) {
  const std::vector<RecipeSection> groups = recipe.sections("optimizer.group");
  std::vector<bool> used(groups.size(), false);
  for (Id id : program.parameters()) {
    Value& value = program.value(id);
    const std::string name = program.segment(value.segment).name + "." + value.name;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!glob_match(groups[g].text("match"), name)) continue;
      used[g] = true;
      value.frozen = groups[g].flag("frozen");
      value.lr_scale = groups[g].number("lr_scale");
      if (groups[g].has("weight_decay")) {
        value.weight_decay = groups[g].number("weight_decay");
        value.decay = value.weight_decay > 0;
      }
      break;
    }
  }
  Diagnostics problems;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (!used[g])
      problems.add(recipe.problem(groups[g].path() + ".match",
                                  "no parameter's name matches " + in_quotes(groups[g].text("match"))));
  problems.throw_if_any();
}

}  // namespace prun
