// What data plugins hold in memory, beside what a rank's process has in any case.
#pragma once

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Of what a rank of this recipe opens. Plugins that hold something of each token (trait token_bytes) are
// opened to be asked how many they have; what cannot be opened is refused by whoever opens it to read, and
// holds nothing.
std::int64_t data_bytes(const Recipe& recipe, PluginHost& plugins, std::int64_t seq, bool trains,
                        bool evaluates);

}  // namespace prun
