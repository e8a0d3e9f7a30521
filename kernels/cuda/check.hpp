// Turns results of the CUDA runtime into errors.
#pragma once

#include <cuda_runtime_api.h>

#include "prun/error.hpp"

namespace prun::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw_error(ErrorCode::internal, "CUDA refused ", what, ": ", cudaGetErrorString(status));
}

}  // namespace prun::cuda
