// Has streams write numbers to memory and wait for them, and shares memory that was backed by hand, by
// functions of the driver that are looked up when the first communicator is made: so the plugin loads where
// there is no driver.
#pragma once

#include <cuda.h>

#include "cuda/check.hpp"

namespace prun::copies {

class Driver {
 public:
  // Throws where there is no driver, or it is too old.
  Driver();

  void write(cudaStream_t stream, void* word, std::uint64_t value) const {
    check(write_(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
          "writing a number");
  }
  // Has the stream wait until the word is `value` or more.
  void wait(cudaStream_t stream, void* word, std::uint64_t value) const {
    check(wait_(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ),
          "waiting for a number");
  }
  void check(CUresult result, const char* what) const;

  decltype(&cuMemGetAddressRange) address_range = nullptr;
  decltype(&cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

 private:
  decltype(&cuGetErrorString) error_string_ = nullptr;
  decltype(&cuStreamWaitValue64) wait_ = nullptr;
  decltype(&cuStreamWriteValue64) write_ = nullptr;
};

}  // namespace prun::copies
