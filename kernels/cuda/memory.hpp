// zero and copy: bytes of any type.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void zero(void* to, std::int64_t bytes, Stream stream);
void copy(const void* from, void* to, std::int64_t bytes, Stream stream);

}  // namespace prun::cuda
