// Writes the table of commands as texts: --help, and a manual page.
#pragma once

#include <string>

#include "cli/command_table.hpp"

namespace prun {

// Returns "prun check RECIPE".
std::string usage_of(const Command& command);
// Returns "prun check RECIPE [--json] [--quiet]"; several commands have bars between.
std::string usage_with_options(std::span<const Command* const> commands);

// Returns all commands, in lines of at most `columns`.
std::string summary(std::size_t columns);
// Says what these commands are for, and lists their options.
std::string details(std::span<const Command* const> commands, std::size_t columns);
// Returns prun(1), for man and mandoc.
std::string manual_page();

}  // namespace prun
