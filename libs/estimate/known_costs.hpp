// Finds the cost table for predictions: the one that was named, or this machine's own; and behind it the
// rates that come with prun, for devices that were not measured here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "estimate/costs.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns the folder of the tables that come with prun: share/prun/costs beside the program's folder.
std::filesystem::path shipped_costs_folder();
// Returns all of their rates, by the files' names. Throws bad_input for a damaged file.
std::vector<DeviceRates> shipped_rates();

// Lists the devices' names, the short ones where they have one: "a100, h100".
std::string names_of_shipped();

// `named` is a file, or a device whose rates come with prun, "h200" or "NVIDIA H200"; nothing: this machine's
// own table, which may be missing. Throws not_found if the named one is not there.
struct KnownCosts {
  CostTable table;
  bool measured = false;  // whether there is a table besides the rates that come with prun

  // Says whether the costs have figures of a device.
  bool knows(std::string_view device) const { return measured || table.rates_of(device); }
};
KnownCosts known_costs(const std::optional<std::filesystem::path>& named);

// Returns what of the costs holds for the recipe's device: for one that is not on this machine nothing that
// was measured here. Throws not_found if nothing is known of the device, with the keys and commands that
// help.
CostTable costs_for(const CostTable& costs, const DeviceInfo& device, const Recipe& recipe,
                    PluginHost& plugins);

}  // namespace prun
