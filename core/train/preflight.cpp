#include "train/preflight.hpp"

#include "train/run_folder.hpp"
#include "train/trainer.hpp"

namespace prun {
namespace {

// The first rank's file is looked into; those of others must be there.
void check_checkpoint_of_all(const Assembly& assembly, const std::filesystem::path& where) {
  const bool one_for_all = !check_checkpoint(assembly, where).digest.empty();
  for (std::int64_t rank = 1; !one_for_all && rank < assembly.mesh().world(); ++rank)
    if (const auto file = find_checkpoint(where) / rank_file_name(rank); !std::filesystem::exists(file))
      throw_error(ErrorCode::not_found, file.string(), " is not there: the checkpoint is not whole");
}

}  // namespace

void preflight(const Assembly& assembly, PluginHost& plugins) {
  check_run_folder(assembly.recipe());
  if (const std::string& resume = assembly.recipe().text("run.resume"); !resume.empty())
    check_checkpoint_of_all(assembly, resume);
  open_data(assembly, plugins);
}

}  // namespace prun
