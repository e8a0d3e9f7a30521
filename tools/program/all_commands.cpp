// Every command there is.
#include "cli/command_table.hpp"

namespace prun {

std::vector<Command> linked_commands() {
  std::vector<Command> all = training_commands();
  for (const std::vector<Command>& some : {program_commands(), explaining_commands()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::string_view left_out() { return ""; }

}  // namespace prun
