// Writes the pages of `prun report`: of runs, from their folders, and of a recipe, from its plan.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "estimate/forecast.hpp"
#include "report/layouts.hpp"
#include "report/page.hpp"
#include "runs/log.hpp"

namespace prun {

inline constexpr std::size_t most_runs = 8;  // are drawn over each other

// Adds the plan of the first run; throws where that cannot be made here.
using AddPlan = std::function<void(Html& page, const RunLog& log)>;

// A page of one run has all there is; a page of more runs has their curves over each other.
std::string run_page(const std::vector<std::filesystem::path>& runs, const AddPlan& add_plan);

// `layouts` are those that the search for its layout planned; null: the recipe states its layout.
std::string recipe_page(const Assembly& assembly, PluginHost& plugins, const Forecast& forecast,
                        const TuneResult* layouts = nullptr);

}  // namespace prun
