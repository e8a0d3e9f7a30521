// help, man, completion, version: what the table of commands says.
#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/completion.hpp"
#include "cli/manual.hpp"
#include "cli/output.hpp"
#include "plugin/benched.hpp"
#include "prun/plugin.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

constexpr std::size_t widest = 120;

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

bool takes_a_strategy(const Command* command) { return command->name == "bench"; }

// What strategies list in their notes.
std::string benches(const Arguments& arguments) {
  std::string text = "\nStrategies that list settings:\n";
  const std::vector<SearchPlace> places = plugin_places({}, {}, arguments.plugin_paths);
  for (const PluginNote& note : benched_strategies(places))
    text += detail::concat("  bench ", note.name, " RECIPE: ", join(benched_settings(note).names(), ", "),
                           "; ", note.help, "\n");
  return text;
}

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
  if (std::any_of(asked.begin(), asked.end(), takes_a_strategy)) print(benches(arguments));
  return 0;
}

int man_command(const Arguments&) {
  print(manual_page());
  return 0;
}

int completion_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  Completed completed{recipe::settable_keys(plugins.catalog()), {}};
  for (const PluginNote& note : benched_strategies(plugins.places()))
    completed.strategies.push_back(note.name);
  print(completion_script(arguments.words[0], completed));
  return 0;
}

int version_command(const Arguments&) {
  std::printf("prun %s (plugin epoch %u)\n", std::string(sdk_version).c_str(), plugin_epoch);
  return 0;
}

}  // namespace prun
