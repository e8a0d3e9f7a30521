// Computes the sums and maxima of reductions.
#pragma once

#include "prun/comm.hpp"

namespace prun::ucx {

// Sets to[i] = first[i] (+) second[i]; `to` may be either of them. 16-bit types are added in float and
// rounded to nearest even; integers wrap; a maximum with a NaN is that NaN.
void combine(DType dtype, Reduction reduction, const void* first, const void* second, void* to,
             std::int64_t elements);

}  // namespace prun::ucx
