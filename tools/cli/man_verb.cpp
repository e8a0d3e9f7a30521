// Implements prun man: it writes the table of commands as a manual page.
#include <cstdio>

#include "cli/command_table.hpp"
#include "cli/manual.hpp"

namespace prun {
namespace {

int man_command(const Arguments&) {
  std::fputs(manual_page().c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> man_verb() {
  return {{"man", "", "this as a manual page: prun man | man -l -", {}, man_command}};
}

}  // namespace prun
