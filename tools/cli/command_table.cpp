#include "cli/command_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- command table

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

namespace {

// ------------------------------------------------------------------- external verbs

namespace fs = std::filesystem;

constexpr std::string_view external_prefix = "prun-";

bool may_be_external(std::string_view verb) {
  const bool plain = std::all_of(verb.begin(), verb.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  return plain && !verb.empty() && verb.front() != '-' && commands_named(verb, {}).empty();
}

bool can_be_executed(const fs::path& file) {
  std::error_code none;
  return fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0;
}

// An empty entry stands for the current folder; executables there are called by their path, not by chance.
std::vector<fs::path> folders_of_path() {
  const char* const path = std::getenv("PATH");
  std::vector<fs::path> folders;
  for (const std::string_view folder : split(path ? path : "", ':'))
    if (!folder.empty()) folders.emplace_back(folder);
  return folders;
}

}  // namespace

std::optional<fs::path> external_verb(std::string_view verb) {
  if (!may_be_external(verb)) return {};
  for (const fs::path& folder : folders_of_path()) {
    const fs::path file = folder / (std::string(external_prefix) + std::string(verb));
    if (can_be_executed(file)) return file;
  }
  return {};
}

std::vector<std::string> external_verbs() {
  std::set<std::string> verbs;
  std::error_code none;
  for (const fs::path& folder : folders_of_path())
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(external_prefix)) continue;
      const std::string verb = name.substr(external_prefix.size());
      if (may_be_external(verb) && can_be_executed(entry.path())) verbs.insert(verb);
    }
  return {verbs.begin(), verbs.end()};
}

void become_external_verb(int argc, char** argv) {
  std::error_code none;
  if (argc < 2 || fs::exists(argv[1], none)) return;
  const std::optional<fs::path> file = external_verb(argv[1]);
  if (!file) return;
  const fs::path self = fs::read_symlink("/proc/self/exe", none);
  if (!self.empty()) ::setenv("PRUN", self.c_str(), 1);
  std::vector<char*> arguments(argv + 1, argv + argc);
  std::string name = *file;
  arguments.front() = name.data();
  arguments.push_back(nullptr);
  ::execv(name.c_str(), arguments.data());
  throw_error(ErrorCode::bad_input, name, " cannot be started: ", std::strerror(errno));
}

}  // namespace prun
