#include "driver.hpp"

namespace prun::copies {
namespace {

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cuda::check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || !found)
    throw_error(ErrorCode::unsupported, "comm copies: the driver has no ", name,
                "; install a driver for CUDA 12 or newer");
  function = reinterpret_cast<Function>(found);
}

}  // namespace

Driver::Driver() {
  look_up("cuGetErrorString", error_string_);
  look_up("cuStreamWaitValue64", wait_);
  look_up("cuStreamWriteValue64", write_);
  look_up("cuMemGetAddressRange", address_range);
  look_up("cuMemRetainAllocationHandle", retain);
  look_up("cuMemExportToShareableHandle", export_handle);
  look_up("cuMemImportFromShareableHandle", import_handle);
  look_up("cuMemAddressReserve", reserve);
  look_up("cuMemAddressFree", free_address);
  look_up("cuMemRelease", release);
  look_up("cuMemMap", map);
  look_up("cuMemUnmap", unmap);
  look_up("cuMemSetAccess", set_access);
}

void Driver::check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  const char* text = "unknown error";
  error_string_(result, &text);
  throw_error(ErrorCode::internal, "comm copies: ", what, ": ", text);
}

}  // namespace prun::copies
