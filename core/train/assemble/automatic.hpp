// Decides what `auto` stands for: the device of a recipe that leaves it open, by what this machine has, and
// the comm plugin of an axis, by the device.
#pragma once

#include <string>
#include <string_view>

#include "train/assemble/plugin_host.hpp"

namespace prun {

inline constexpr std::string_view automatic = "auto";
// In which our launcher tells its ranks what it has chosen: none needs to ask a device that it will not use,
// whose driver would stay in its memory.
inline constexpr const char* chosen_device_variable = "PRUN_CHOSEN_DEVICE";

// Throws unsupported where the driver that a device states cannot be opened here.
void check_driver(PluginHost& plugins, const std::string& device);

// The comm plugin that goes with a device: it says so, or it is that of the device that runs everywhere.
std::string comm_of_device(PluginHost& plugins, const std::string& device);
// With the recipe's, which is that of the device that runs everywhere where several ranks may have one unit.
std::string automatic_comm(const Recipe& recipe, PluginHost& plugins);

struct DeviceChoice {
  Recipe recipe;     // which names its device
  std::string said;  // what was chosen, and why: one line, or nothing where the recipe leaves nothing open
};

// A device is taken where its driver is there, it has a unit for a rank in that place, knows
// all that the recipe says of the device, and each axis has a comm plugin that goes with it.
DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local);

}  // namespace prun
