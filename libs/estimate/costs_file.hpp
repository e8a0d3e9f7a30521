// Reads and writes cost tables as JSON files, strictly: a misspelled member is an error with its place.
// Example: `prun bench kernels` merges what it measured into ~/.cache/prun/costs.json.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "estimate/costs.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- costs file

// Returns $XDG_CACHE_HOME/prun/costs.json, or ~/.cache/prun/costs.json.
std::filesystem::path default_costs_path();

// Throws bad_input with the place in the text, which error messages call `source`.
CostTable parse_costs(std::string_view text, const std::string& source);
std::string to_json(const CostTable& table);

// Returns nothing if there is no such file.
std::optional<CostTable> read_costs(const std::filesystem::path& file);

// Throws if the file has a table of another machine, or is damaged.
void check_can_merge(const std::filesystem::path& file, const Machine& here);

// Adds this machine's measurements to the file, which may be new. Refuses a table of another machine.
void merge_costs(const std::filesystem::path& file, const CostTable& measured);

// ------------------------------------------------------------------- known costs
// Finds the cost table for predictions: a named one, or this machine's, completed by the rates that come with
// prun for devices that were not measured. Example: `--costs h200` on a laptop takes the shipped rates of an
// H200.

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

// ------------------------------------------------------------------- stated drives
// Adds the drive rates of a recipe (`tier.nvme.read_rate`) to a cost table. Example: two folders with 7 and 5
// GB/s give a tier of 10 GB/s, since stripes are equal and the slower drive decides.

// Returns the rates that the recipe states of a tier; nothing if it states none, or if that device is no
// tier.
std::optional<DriveRates> stated_drives_of(const Assembly& assembly, PluginHost& plugins, std::size_t device);

// Returns the table with the recipe's rates of each tier, unless it has rates of that tier; nothing if no
// rate is added.
std::optional<CostTable> with_stated_drives(const CostTable& table, const Assembly& assembly,
                                            PluginHost& plugins);

}  // namespace prun
