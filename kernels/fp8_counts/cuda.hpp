// Declares count_fp8_codes and peak_fp8_scales: see kernels/fp8_counts/fp8_counts.cpp. T is float, bf16 or
// f16, and x row-major; extents are multiples of 16. Where `on`, a number on the device, is 0, nothing is
// read.
#pragma once

#include "cuda/launch.hpp"
#include "prun/fp8_blocks.hpp"

namespace prun::cuda {

// Adds to three counts.
template <class T>
void count_fp8_codes(Fp8Blocks blocks, const T* x, std::int64_t rows, std::int64_t columns, const double* on,
                     double* counts, Stream stream);

// Raises three numbers, none of which is below 0.
template <class T>
void peak_fp8_scales(Fp8Blocks blocks, const T* x, std::int64_t rows, std::int64_t columns, const double* on,
                     double* peaks, Stream stream);

}  // namespace prun::cuda
