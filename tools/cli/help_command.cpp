// help, man, completion, version: what the table of commands says.
#include <cstdio>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/completion.hpp"
#include "cli/manual.hpp"
#include "cli/output.hpp"
#include "prun/plugin.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

constexpr std::size_t widest = 120;

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

}  // namespace

int help_command(const Arguments& arguments) {
  const std::size_t width = std::min(columns(widest), widest);
  std::vector<const Command*> asked;
  if (!arguments.words.empty())
    asked = commands_named(arguments.words[0], std::span(arguments.words).subspan(1));
  if (asked.empty() && !arguments.words.empty()) {
    std::vector<std::string> known;
    for (const Command& command : commands())
      known.emplace_back(command.name.substr(0, command.name.find(' ')));
    throw_error(ErrorCode::bad_input, "there is no command ", in_quotes(arguments.words[0]),
                did_you_mean(arguments.words[0], known));
  }
  print(asked.empty() ? summary(width) : details(asked, width));
  return 0;
}

int man_command(const Arguments&) {
  print(manual_page());
  return 0;
}

int completion_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  print(completion_script(arguments.words[0], recipe::settable_keys(plugins.catalog())));
  return 0;
}

int version_command(const Arguments&) {
  std::printf("prun %s (plugin epoch %u)\n", std::string(sdk_version).c_str(), plugin_epoch);
  return 0;
}

}  // namespace prun
