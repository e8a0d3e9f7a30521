// Finds tiers: devices that keep bytes and compute nothing, which strategies name by their plugins and
// recipes set in [tier.NAME].
#pragma once

#include "program/requests.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns what strategies may ask of tiers; both arguments must outlive the answers.
KnownTiers known_tiers(const Recipe& recipe, PluginHost& plugins);

// Throws if the recipe has a table [tier.NAME] that nothing in its training reads: its author believes that
// bytes lie there.
void refuse_idle_tiers(const Assembly& assembly);

}  // namespace prun
