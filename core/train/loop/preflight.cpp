#include "train/loop/preflight.hpp"

#include "recipe/placed.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

void preflight(const Assembly& assembly, PluginHost& plugins) {
  check_run_folder(assembly.recipe());
  std::optional<LoadedCheckpoint> from;
  if (const std::string& resume = assembly.recipe().text("run.resume"); !resume.empty())
    from = recipe::in_section(
        assembly.recipe().section("run"), [&] { return check_checkpoint(assembly, resume); }, "resume");
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
