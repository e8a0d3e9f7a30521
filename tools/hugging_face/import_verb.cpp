// Implements prun import: it makes a checkpoint of a directory as Hugging Face's libraries keep it.
#include <cstdio>

#include "cli/clean_end.hpp"
#include "hugging_face/conversion_options.hpp"

namespace prun {
namespace {

int import_command(const Arguments& arguments) {
  const CleanEnd clean;
  PluginHost plugins(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const Conversion how = conversion_of(arguments);
  std::fputs(import_directory(plugins, how).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> import_verb() {
  return {
      {"import",
       "DIR",
       "a checkpoint of the weights in a folder of Hugging Face; none is needed: model.init takes the folder "
       "as well",
       {{"--out", "CKPT", "where to", true}, weights_type},
       import_command}};
}

}  // namespace prun
