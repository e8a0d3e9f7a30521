// Implements prun version.
#include <cstdio>

#include "cli/command_table.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

int version_command(const Arguments&) {
  std::printf("prun %s (plugin epoch %u)\n", std::string(sdk_version).c_str(), plugin_epoch);
  return 0;
}

}  // namespace

std::vector<Command> version_verb() {
  return {{"version", "", "of prun and of its plugins", {}, version_command}};
}

}  // namespace prun
