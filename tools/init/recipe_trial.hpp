// Tries a recipe that is being written on this machine.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

Recipe parsed_recipe(const std::string& text, PluginHost& plugins);
// Of the device that it comes to; without what would be gone with the device.
DeviceInfo device_of_recipe(const std::string& text, PluginHost& plugins);
// Everything prun check asks, for so many ranks of this host. Throws what that does.
void try_recipe(const std::string& text, std::int64_t ranks, PluginHost& plugins);
bool recipe_fits(const std::string& text, std::int64_t ranks, PluginHost& plugins);

}  // namespace prun
