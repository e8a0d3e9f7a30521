// Reports what a rank's devices hand each other in a step, and how long the updates take that run outside the
// first device.
#pragma once

#include "base/json.hpp"
#include "estimate/forecast.hpp"

namespace prun {

// Returns an empty text where a rank has one device.
std::string offload_text(const Assembly& assembly, const Forecast& forecast);
void write_offload(JsonWriter& json, const Assembly& assembly, const Forecast& forecast);

}  // namespace prun
