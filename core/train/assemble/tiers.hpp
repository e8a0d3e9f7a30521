// Finds tiers: devices that keep bytes and compute nothing, which strategies name by their plugins and
// recipes set in [tier.NAME].
#pragma once

#include "program/requests.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// What strategies may ask; both must outlive the answers.
KnownTiers known_tiers(const Recipe& recipe, PluginHost& plugins);

// Throws where the recipe has a table [tier.NAME] that nothing of its training reads: whoever wrote it
// believes that bytes lie there.
void refuse_idle_tiers(const Assembly& assembly);

}  // namespace prun
