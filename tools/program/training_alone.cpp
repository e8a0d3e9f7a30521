// The commands of a prun that trains and has no programs beside that (PRUN_PROGRAMS=training).
#include "cli/command_table.hpp"

namespace prun {

std::vector<Command> linked_commands() {
  std::vector<Command> all = training_commands();
  for (const Command& command : explaining_commands()) all.push_back(command);
  return all;
}

std::string_view left_out() {
  return "; this prun was built for training alone, and tools/build adds the other commands";
}

}  // namespace prun
