// The optimizers of a recipe: that of [optimizer], and those of its groups.
#pragma once

#include "program/optimizers.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Makes them, in the order in which parameters are numbered by them (parameter_groups.hpp).
Optimizers optimizers_of(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
