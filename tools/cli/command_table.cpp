#include "cli/command_table.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.hpp"

namespace prun {
namespace {

constexpr std::array<CommandOption, 4> common = {{
    {"--set", "KEY=VALUE", "change a value of the recipe, e.g. --set optimizer.lr=3e-4"},
    {"--plugin-path", "FOLDER", "look for plugins there first"},
    {"--help", "", "the options of a command"},
    {"--version", "", "of prun and of its plugins"},
}};

constexpr std::array<ExitCode, 8> codes = {{
    {"0", "done"},
    {"1", "a defect of prun; of verify, diff and ckpt diff: a difference"},
    {"2", "bad input, or too low a limit of the system; of doctor: something is broken"},
    {"10", "a rank died"},
    {"11", "a rank hangs"},
    {"12", "communication failed"},
    {"13", "storage failed, or is full"},
    {"15", "diverged: a loss or gradient is not finite"},
}};

constexpr std::array<Variable, 4> read_variables = {{
    {"PRUN_PLUGIN_PATH", "folders of plugins, with colons between, searched after --plugin-path"},
    {"XDG_CACHE_HOME", "where prun/ with the cost table and the kernels that were chosen lies; ~/.cache"},
    {"NO_COLOR", "not empty: no colors on a terminal"},
    {"COLUMNS", "how wide texts may be where the terminal does not say it"},
}};

}  // namespace

std::span<const Command> commands() {
  static const std::vector<Command> table = linked_commands ? linked_commands() : std::vector<Command>();
  return table;
}
std::span<const CommandOption> common_options() { return common; }
std::span<const ExitCode> exit_codes() { return codes; }
std::span<const Variable> variables() { return read_variables; }

std::vector<const Command*> commands_named(std::string_view verb, std::span<const std::string> words) {
  std::vector<const Command*> found;
  for (const Command& command : commands()) {
    const std::string_view first = command.name.substr(0, command.name.find(' '));
    if (first != verb) continue;
    if (!words.empty() && command.name.substr(std::min(first.size() + 1, command.name.size())) == words[0])
      return {&command};
    found.push_back(&command);
  }
  // A command without a second word of its own takes words that belong to none of the others.
  const auto alone =
      std::find_if(found.begin(), found.end(), [&](const Command* command) { return command->name == verb; });
  if (!words.empty() && alone != found.end()) return {*alone};
  return found;
}

WordCount word_count(const Command& command) {
  WordCount count;
  count.least = count.most = split(command.name, ' ').size() - 1;
  for (const std::string_view word : split(command.words, ' ')) {
    if (word.empty()) continue;
    count.least += word.front() != '[';
    count.most = word.ends_with("...") ? std::numeric_limits<std::size_t>::max() : count.most + 1;
  }
  return count;
}

}  // namespace prun
