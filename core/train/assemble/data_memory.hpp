// Counts what data plugins hold in memory, beside what a rank's process has in any case.
#pragma once

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Counts the bytes of what a rank of this recipe opens. Plugins that hold something for each token (trait
// token_bytes) are opened to find how many tokens they have; data that cannot be opened count as nothing
// here, and are refused when they are opened to be read.
std::int64_t data_bytes(const Recipe& recipe, PluginHost& plugins, std::int64_t seq, bool trains,
                        bool evaluates);

}  // namespace prun
