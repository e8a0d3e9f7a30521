// Tries a recipe that is being written on this machine.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

Recipe parsed_recipe(const std::string& text, PluginHost& plugins);
// Describes the device that the recipe chooses; strings that would be gone with the device are left out.
DeviceInfo device_of_recipe(const std::string& text, PluginHost& plugins);
// Checks all that prun check does, for `ranks` ranks of this host. Throws what that does.
void try_recipe(const std::string& text, std::int64_t ranks, PluginHost& plugins);
bool recipe_fits(const std::string& text, std::int64_t ranks, PluginHost& plugins);

}  // namespace prun
