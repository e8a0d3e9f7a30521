// Reads the rates that a recipe states of its drives.
#pragma once

#include <optional>

#include "estimate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns the table with the rates that the recipe states of each tier, unless the table has them already;
// nothing if that is the table itself. A tier's bytes lie in stripes over its folders, so the slowest drive
// decides how fast all are.
std::optional<CostTable> with_stated_drives(const CostTable& table, const Assembly& assembly,
                                            PluginHost& plugins);

}  // namespace prun
