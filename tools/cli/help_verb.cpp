// prun help: what the table of commands says.
#include <cstdio>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/manual.hpp"
#include "cli/output.hpp"

namespace prun {
namespace {

constexpr std::size_t widest = 120;

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
  return 0;
}

}  // namespace

std::vector<Command> help_verb() {
  return {{"help", "[COMMAND]...", "what there is, or the options of one command", {}, help_command}};
}

}  // namespace prun
