// Lists what `prun plugins check` checks of plugins of one kind, beyond the border that all share.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// Other plugins that one is tried with, such as models for a strategy, are looked for in `places`. A check
// that needs one that is not there is left out, and reported. `given` is as for trial_schema(), `recipe` as
// for check_strategy().
std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places, const std::string& given = "",
                                   const std::optional<std::filesystem::path>& recipe = {});

}  // namespace prun
