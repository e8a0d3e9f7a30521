// Implements prun help: it prints what the table of commands says.
#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cli/benched.hpp"
#include "cli/command_table.hpp"
#include "cli/manual.hpp"
#include "cli/output.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

constexpr std::size_t widest = 120;

bool takes_a_strategy(const Command* command) { return command->name == "bench"; }

// Returns what strategies list in their notes.
std::string benches(const Arguments& arguments) {
  std::string text = "\nStrategies that list settings:\n";
  const std::vector<SearchPlace> places = plugin_places({}, {}, arguments.plugin_paths);
  for (const PluginNote& note : benched_strategies(places))
    text += detail::concat("  bench ", note.name, " RECIPE: ", join(benched_settings(note).names(), ", "),
                           "; ", note.help, "\n");
  return text;
}

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
  std::fputs((asked.empty() ? summary(width) : details(asked, width)).c_str(), stdout);
  if (std::any_of(asked.begin(), asked.end(), takes_a_strategy))
    std::fputs(benches(arguments).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> help_verb() {
  return {{"help", "[COMMAND]...", "what there is, or the options of one command", {}, help_command}};
}

}  // namespace prun
