// Which limit of the system an error number speaks of.
#pragma once

#include <string>

namespace prun {

// "Too many open files; raise the limit on open files (ulimit -n)"
std::string refusal_text(int error);

}  // namespace prun
