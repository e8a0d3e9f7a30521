// Reports the plan to people and to programs: batch, memory by purpose, FLOPs.
#pragma once

#include <string>

#include "estimate/forecast.hpp"

namespace prun {

std::string plan_text(const Assembly& assembly, const Forecast& forecast);
std::string plan_json(const Assembly& assembly, const Forecast& forecast, const std::string& chosen = {});

}  // namespace prun
