// What a rank's devices hand each other in a step, and how long the updates take that run beside the first.
#pragma once

#include "base/json.hpp"
#include "inspect/forecast.hpp"

namespace prun {

// Bytes that a step copies from the recipe's device's own memory to the host's, and back.
struct MovedBytes {
  std::int64_t to_host = 0, to_device = 0;
};
MovedBytes moved_bytes(const Program& program, const Plan& plan);

// Empty where a rank has one device.
std::string offload_text(const Assembly& assembly, const Forecast& forecast);
void write_offload(JsonWriter& json, const Assembly& assembly, const Forecast& forecast);

}  // namespace prun
