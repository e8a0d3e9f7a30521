// What can be typed. Reading a command line, --help, the manual page and the shells' completion all follow
// this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"

namespace prun {

struct CommandOption {
  std::string_view name;   // "--steps"
  std::string_view value;  // what follows it, "N"; one of "a|b"; empty: nothing
  std::string_view help;
  bool needed = false;
};

struct Command {
  std::string_view name;   // "check", "bench kernels"
  std::string_view words;  // what follows it: "RECIPE", "[RECIPE]", "FILE..."
  std::string_view help;
  std::vector<CommandOption> options;  // besides common_options()
  int (*run)(const Arguments& arguments);
};

// Commands that share their first word stand together.
std::span<const Command> commands();

// What `commands` lists, in this order: what trains and tells what that would be, the programs beside it,
// which say something about plans, runs, machines and plugins, and what explains prun itself.
std::vector<Command> training_commands();
std::vector<Command> program_commands();
std::vector<Command> explaining_commands();

// Those of them that this program was linked with, and what is to be said where a command is not among them.
// Each program that has the core has one of all_commands.cpp and training_alone.cpp.
std::vector<Command> linked_commands();
std::string_view left_out();

// Those that go with every command.
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
// Of the environment, those that prun itself reads.
std::span<const Variable> variables();

// The command that these words name: by two of them if that can be, else all that begin with the first.
std::vector<const Command*> commands_named(std::string_view verb, std::span<const std::string> words);

// How many words follow the first one of a command, its own second one among them.
struct WordCount {
  std::size_t least = 0, most = 0;
};
WordCount word_count(const Command& command);

}  // namespace prun
