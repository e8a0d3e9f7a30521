// Writes scripts by which shells complete command lines of prun.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/settable.hpp"

namespace prun {

// Holds what depends on the installed plugins: keys that may follow --set, and strategies that can be
// benched.
struct Completed {
  std::vector<recipe::SettableKey> keys;
  std::vector<std::string> strategies;
};
// `shell` is "bash" or "zsh"; throws bad_input for another.
std::string completion_script(std::string_view shell, const Completed& completed);

}  // namespace prun
