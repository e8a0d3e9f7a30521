// Scripts by which shells complete command lines of prun.
#pragma once

#include <string>
#include <string_view>

namespace prun {

// "bash" or "zsh"; throws bad_input for another.
std::string completion_script(std::string_view shell);

}  // namespace prun
