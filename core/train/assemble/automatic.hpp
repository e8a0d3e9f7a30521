// Decides what `auto` stands for: the device of a recipe that leaves it open, by what this machine has, and
// the comm plugin of an axis, by the device.
#pragma once

#include <string>
#include <string_view>

#include "train/assemble/plugin_host.hpp"

namespace prun {

inline constexpr std::string_view automatic = "auto";
// Our launcher tells its ranks by this variable what it has chosen: none needs to ask a device that it will
// not use, whose driver would stay in its memory.
inline constexpr const char* chosen_device_variable = "PRUN_CHOSEN_DEVICE";

// Throws unsupported if the driver that a device names cannot be opened here.
void check_driver(PluginHost& plugins, const std::string& device);

// Returns the comm plugin that goes with a device: the one it names, or that of the device that runs
// everywhere.
std::string comm_of_device(PluginHost& plugins, const std::string& device);
// Returns the comm plugin for the recipe's device, or that of the device that runs everywhere if several
// ranks may have one unit.
std::string automatic_comm(const Recipe& recipe, PluginHost& plugins);

struct DeviceChoice {
  Recipe recipe;     // recipe that names its device
  std::string said;  // the choice and its reason in one line; empty if the recipe leaves nothing open
};

// Chooses a device: its driver must be there, it must have a unit for a rank in that place and know all
// options that the recipe gives the device, and each axis must have a comm plugin that goes with it.
DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local);

}  // namespace prun
