// The table of commands as texts: --help, and a manual page.
#pragma once

#include <string>

#include "cli/command_table.hpp"

namespace prun {

// "prun check RECIPE"
std::string usage_of(const Command& command);
// "prun check RECIPE [--json] [--quiet]", of several with bars between.
std::string usage_with_options(std::span<const Command* const> commands);

// All commands, in lines of at most so many columns.
std::string summary(std::size_t columns);
// What these are for, and their options.
std::string details(std::span<const Command* const> commands, std::size_t columns);
// prun(1), for man and mandoc.
std::string manual_page();

}  // namespace prun
