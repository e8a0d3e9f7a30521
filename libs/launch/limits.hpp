// Says which limit of the system an error number refers to.
#pragma once

#include <string>

namespace prun {

// Returns a text such as "Too many open files; raise the limit on open files (ulimit -n)".
std::string refusal_text(int error);

}  // namespace prun
