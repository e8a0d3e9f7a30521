// Scripts by which shells complete command lines of prun.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/settable.hpp"

namespace prun {

// What depends on the plugins that there are: keys that may follow --set, and strategies that can be benched.
struct Completed {
  std::vector<recipe::SettableKey> keys;
  std::vector<std::string> strategies;
};
// "bash" or "zsh"; throws bad_input for another.
std::string completion_script(std::string_view shell, const Completed& completed);

}  // namespace prun
