// Implements prun export: it writes a directory as Hugging Face's libraries keep them.
#include <cstdio>

#include "cli/clean_end.hpp"
#include "cli/open_recipe.hpp"
#include "hugging_face/conversion_options.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

int export_command(const Arguments& arguments) {
  const CleanEnd clean;
  Conversion how = conversion_of(arguments);
  if (arguments.has("--average")) how.weights = Weights::averaged;
  PluginHost plugins(plugin_places_of_checkpoint(arguments, find_checkpoint(arguments.words[0])));
  say_without_latest(arguments.words[0]);
  const bool adapter = arguments.flags.contains("--adapter");
  std::fputs((adapter ? export_adapter(plugins, how) : export_checkpoint(plugins, how)).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> export_verb() {
  return {{"export",
           "CKPT",
           "a folder of Hugging Face of a checkpoint's weights, or of a run's latest",
           {{"--out", "DIR", "where to", true},
            weights_type,
            {"--file-size", "SIZE", "of a file at most, 5GiB"},
            {"--adapter", "", "a folder of PEFT of its adapters alone, which are merged otherwise"},
            {"--average", "", "the average of its weights, which optimizer.average keeps"}},
           export_command}};
}

}  // namespace prun
