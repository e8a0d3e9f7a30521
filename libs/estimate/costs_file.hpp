// Reads and writes cost tables as files: JSON, read strictly.
#pragma once

#include <filesystem>
#include <optional>

#include "estimate/costs.hpp"

namespace prun {

// Returns $XDG_CACHE_HOME/prun/costs.json, or ~/.cache/prun/costs.json.
std::filesystem::path default_costs_path();

// Parses a table. Throws bad_input: one sentence that names the place in the text. `source` stands for the
// text.
CostTable parse_costs(std::string_view text, const std::string& source);
std::string to_json(const CostTable& table);

// Returns nothing if there is no such file.
std::optional<CostTable> read_costs(const std::filesystem::path& file);

// Throws if the file's table cannot take figures of this machine, because it is of another one or damaged.
void check_can_merge(const std::filesystem::path& file, const Machine& here);

// Adds what was measured on this machine to the file, which is created if there is none. A table of another
// machine is refused.
void merge_costs(const std::filesystem::path& file, const CostTable& measured);

}  // namespace prun
