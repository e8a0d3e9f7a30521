// Describes tensors as Hopper's copies of boxes see them (cluster.cuh).
#pragma once

#include <cuda.h>

#include "prun/types.hpp"

namespace prun::cuda {

// Returns a map of planes of rows of `columns` columns of bf16, dense, of which a copy takes 64 columns of
// `box_rows` rows into a panel (shared_rows.cuh); elements beyond a plane or the tensor are zero there.
// Columns are a multiple of 8, and data begins at a multiple of 16 bytes.
CUtensorMap panels_of(const bf16* data, std::int64_t columns, std::int64_t rows, std::int64_t planes,
                      int box_rows);

}  // namespace prun::cuda
