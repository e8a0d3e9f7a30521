// Reads and writes cost tables as JSON files, strictly: a misspelled member is an error with its place.
// Example: `prun bench kernels` merges what it measured into ~/.cache/prun/costs.json.
#pragma once

#include <filesystem>
#include <optional>

#include "estimate/costs.hpp"

namespace prun {

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

}  // namespace prun
