// Launches a kernel that does not end where `sample` is among the samples on the device.
#pragma once

#include <cstdint>

namespace prun {

void spin_where(const std::int64_t* samples, std::int64_t count, std::int64_t sample, void* stream);

}  // namespace prun
