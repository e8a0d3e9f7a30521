// Holds the functions of the CUDA driver itself: memory that is reserved, backed and mapped separately, and
// streams that wait for numbers in memory. They are looked up when the first queue or byte is needed, so that
// the plugin loads where there is no driver.
#pragma once

#include <cuda.h>

#include "cuda/check.hpp"

namespace prun::cuda {

struct Driver {
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuStreamWaitValue64) wait_value = nullptr;
  decltype(&cuStreamWriteValue64) write_value = nullptr;

  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* text = "unknown error";
    error_string(result, &text);
    throw_error(ErrorCode::internal, "device cuda: ", what, ": ", text);
  }
};

// Throws where there is no driver, or it is too old.
Driver load_driver();

}  // namespace prun::cuda
