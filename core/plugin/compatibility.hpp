// Checks whether a plugin was built against an SDK that fits this prun.
#pragma once

#include <string>

#include "plugin/note.hpp"

namespace prun {

// Returns an empty text when epoch, ABI tag and layout hash equal the core's; otherwise a sentence that names
// both sides.
std::string incompatibility(const PluginNote& note);

}  // namespace prun
