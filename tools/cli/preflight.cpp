#include "cli/preflight.hpp"

#include "base/text.hpp"
#include "plan/persistent.hpp"
#include "plugin/traits.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// Refuses an optimizer to which a state of zeros would be no state.
void check_goes_on(const Recipe& recipe, PluginHost& plugins) {
  if (!recipe.text("run.resume").empty()) return;
  std::vector<std::string> names = {recipe.section("optimizer").plugin()};
  for (const RecipeSection& group : recipe.sections("optimizer.group"))
    if (!group.plugin().empty()) names.push_back(group.plugin());
  for (const std::string& name : names)
    if (trait_of(plugins.note("optimizer", name), "begins") == "resumed")
      throw_error(
          ErrorCode::bad_input, "optimizer plugin '", name,
          "' goes on with what another optimizer has made, and this run begins anew; train with that one "
          "first, and go on from its checkpoint: --set run.resume=FOLDER");
}

std::int64_t checkpoint_bytes(const Assembly& assembly) {
  std::int64_t all = 0;
  const std::vector<int> stages =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : stages) all += persistent_bytes(assembly.program(), assembly.plan_of(rank).instances);
  return all;
}

std::string no_room_for_save(const Assembly& assembly) {
  const Recipe& recipe = assembly.recipe();
  if (!saves(recipe)) return {};
  const std::int64_t needed = checkpoint_bytes(assembly), room = free_bytes(run_folder(recipe));
  if (needed <= room) return {};
  return detail::concat(
      "cannot save this run: a checkpoint needs ", size_text(needed), ", ", run_folder(recipe).string(),
      " has ", size_text(room), " free; name a larger drive in run.out, or save nothing",
      saves_between_steps(recipe) ? ": no run.save_every, no run.save_minutes, no eval.keep_best and " : ": ",
      "run.save_at_end = false");
}

void preflight(const Assembly& assembly, PluginHost& plugins) {
  check_run_folder(assembly.recipe());
  if (assembly.recipe().flag("eval.keep_best") && !assembly.recipe().flag("run.fresh"))
    check_best_places(run_folder(assembly.recipe()));
  std::optional<LoadedCheckpoint> from;
  if (const std::string& resume = assembly.recipe().text("run.resume"); !resume.empty())
    from = recipe::in_section(
        assembly.recipe().section("run"), [&] { return check_checkpoint(assembly, resume); }, "resume");
  check_goes_on(assembly.recipe(), plugins);
  if (from)
    open_base(assembly.recipe(), assembly.program(), plugins);
  else
    open_start_values(assembly.recipe(), assembly.program(), plugins);
  const Samples samples = open_data(assembly, plugins);
  if (from) check_sets(*from, sizes_of(samples), assembly.recipe());
  if (has_validation(assembly.recipe()) || assembly.evaluation())
    open_data(assembly, plugins, DataPart::validation);
}

}  // namespace prun
