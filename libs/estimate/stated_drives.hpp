// Adds the drive rates of a recipe (`tier.nvme.read_rate`) to a cost table. Example: two folders with 7 and 5
// GB/s give a tier of 10 GB/s, since stripes are equal and the slower drive decides.
#pragma once

#include <optional>

#include "estimate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns the rates that the recipe states of a tier; nothing if it states none, or if that device is no
// tier.
std::optional<DriveRates> stated_drives_of(const Assembly& assembly, PluginHost& plugins, std::size_t device);

// Returns the table with the recipe's rates of each tier, unless it has rates of that tier; nothing if no
// rate is added.
std::optional<CostTable> with_stated_drives(const CostTable& table, const Assembly& assembly,
                                            PluginHost& plugins);

}  // namespace prun
