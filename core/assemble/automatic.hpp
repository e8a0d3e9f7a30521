// What `auto` stands for: the device of a recipe that leaves it open, by what this machine has, and the comm
// plugin of an axis, by the device.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "assemble/plugin_host.hpp"

namespace prun {

inline constexpr std::string_view automatic = "auto";

// Devices that it may stand for, the one preferred first. The last runs everywhere.
inline constexpr std::array<std::string_view, 2> automatic_devices = {"cuda", "cpu"};

// The comm plugin made for a device.
std::string_view comm_of_device(std::string_view device);

struct DeviceChoice {
  Recipe recipe;     // which names its device
  std::string said;  // what was chosen, and why: one line, or nothing where the recipe leaves nothing open
};

// A device is taken where its plugin and its driver are there, it has a unit for a rank in that place, knows
// all that the recipe says of the device, and each axis has a comm plugin that goes with it.
DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local);

}  // namespace prun
