// Implements prun completion: it writes the table of commands for a shell.
#include <cstdio>

#include "cli/benched.hpp"
#include "cli/command_table.hpp"
#include "cli/completion.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

int completion_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  Completed completed{recipe::settable_keys(plugins.catalog()), {}};
  for (const PluginNote& note : benched_strategies(plugins.places()))
    completed.strategies.push_back(note.name);
  const std::string script = completion_script(arguments.words[0], completed);
  std::fputs(script.c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> completion_verb() {
  return {{"completion",
           "bash|zsh",
           "a script that completes these commands: source <(prun completion bash)",
           {},
           completion_command}};
}

}  // namespace prun
