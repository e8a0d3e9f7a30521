// Makes the optimizers of a recipe: that of [optimizer], and those of its groups.
#pragma once

#include "program/optimizers.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns them in the order in which parameters number them (parameter_groups.hpp).
Optimizers optimizers_of(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
