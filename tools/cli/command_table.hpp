// Lists what can be typed. Reading a command line, --help, the manual page and the shells' completion all
// follow this table.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"

namespace prun {

// ------------------------------------------------------------------- command table

struct CommandOption {
  std::string_view name;   // such as "--steps"
  std::string_view value;  // the word behind it, "N"; one of "a|b"; empty: none
  std::string_view help;
  bool needed = false;
};

struct Command {
  std::string_view name;   // such as "check", "bench kernels"
  std::string_view words;  // follow it: "RECIPE", "[RECIPE]", "FILE..."
  std::string_view help;
  std::vector<CommandOption> options;  // those besides common_options()
  int (*run)(const Arguments& arguments);
};

// Commands that share their first word stand together.
std::span<const Command> commands();

// These return the commands of the verbs that this program was linked with, in the order of
// tools/CMakeLists.txt, and what to say where a command is not among them. The build writes both, for each
// program that has the command line: the verb `runs` brings its commands by runs_verb(), in
// runs/run_list.cpp. They are null in other programs, such as tests, that use parts of the command line.
[[gnu::weak]] std::vector<Command> linked_commands();
[[gnu::weak]] std::string_view left_out();

// Several commands take these.
inline constexpr CommandOption json_option = {"--json", "", "as JSON, for programs"};
inline constexpr CommandOption quiet_option = {"--quiet", "", "say only what is not good"};
inline constexpr CommandOption costs_option = {"--costs", "FILE",
                                               "the cost table, in place of the one that prun bench writes"};

// Returns the options that go with every command.
std::span<const CommandOption> common_options();

struct ExitCode {
  std::string_view code;
  std::string_view meaning;
};
std::span<const ExitCode> exit_codes();

struct Variable {
  std::string_view name;
  std::string_view help;
};
// Lists environment variables that prun itself reads.
std::span<const Variable> variables();

// Returns the command that these words name: by two of them if that can be, else all that begin with the
// first.
std::vector<const Command*> commands_named(std::string_view verb, std::span<const std::string> words);

// Says how many words follow the first one of a command, a second word of its name among them.
struct WordCount {
  std::size_t least = 0, most = 0;
};
WordCount word_count(const Command& command);

// ------------------------------------------------------------------- external verbs
// Calls verbs of third parties: `prun VERB` runs an executable prun-VERB in a folder of PATH, as git does it.

// Returns the first prun-VERB on the path that may be executed. A verb is lower-case letters, digits and
// dashes, and none of prun's own.
std::optional<std::filesystem::path> external_verb(std::string_view verb);

// Returns all verbs that can be called so, in alphabetical order.
std::vector<std::string> external_verbs();

// Becomes that executable, where the first argument is such a verb and not a file here. It reads the words
// behind the verb itself, and finds the prun that called it in the environment, as PRUN.
void become_external_verb(int argc, char** argv);

}  // namespace prun
