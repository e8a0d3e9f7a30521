// Finds the cost table for predictions: a named one, or this machine's, completed by the rates that come with
// prun for devices that were not measured. Example: `--costs h200` on a laptop takes the shipped rates of an
// H200.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "estimate/costs.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns share/prun/costs next to the program's folder.
std::filesystem::path shipped_costs_folder();
// Returns them sorted by file name. Throws bad_input for a damaged file.
std::vector<DeviceRates> shipped_rates();

// Returns the short names where there are any: "a100, h100".
std::string names_of_shipped();

// `named` is a file, or a device with shipped rates ("h200", "NVIDIA H200"); nothing: this machine's table,
// if there is one. Throws not_found if a named one does not exist.
struct KnownCosts {
  CostTable table;
  bool measured = false;  // a table besides the shipped rates exists

  bool knows(std::string_view device) const { return measured || table.rates_of(device); }
};
KnownCosts known_costs(const std::optional<std::filesystem::path>& named);

// Returns what applies to the recipe's device: for one that this machine does not have, no measurement of
// this machine. Throws not_found with keys and commands that help.
CostTable costs_for(const CostTable& costs, const DeviceInfo& device, const Recipe& recipe,
                    PluginHost& plugins);

}  // namespace prun
