// Scripts by which shells complete command lines of prun.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/settable.hpp"

namespace prun {

// "bash" or "zsh"; throws bad_input for another. `keys`: what may follow --set.
using SettableKeys = std::vector<recipe::SettableKey>;
std::string completion_script(std::string_view shell, const SettableKeys& keys);

}  // namespace prun
