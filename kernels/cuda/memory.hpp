// zero and copy: bytes of any type; copy's may also lie in pinned memory of the host.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void zero(void* to, std::int64_t bytes, Stream stream);
void copy(const void* from, void* to, std::int64_t bytes, Stream stream);

}  // namespace prun::cuda
