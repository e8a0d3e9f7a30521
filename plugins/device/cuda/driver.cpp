#include "driver.hpp"

namespace prun::cuda {
namespace {

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || !found)
    throw_error(ErrorCode::unsupported, "device cuda: the driver has no ", name,
                "; install a driver for CUDA 12 or newer");
  function = reinterpret_cast<Function>(found);
}

}  // namespace

Driver load_driver() {
  Driver driver;
  look_up("cuGetErrorString", driver.error_string);
  look_up("cuMemGetAllocationGranularity", driver.granularity);
  look_up("cuMemAddressReserve", driver.reserve);
  look_up("cuMemAddressFree", driver.free_address);
  look_up("cuMemCreate", driver.create);
  look_up("cuMemRelease", driver.release);
  look_up("cuMemMap", driver.map);
  look_up("cuMemUnmap", driver.unmap);
  look_up("cuMemSetAccess", driver.set_access);
  look_up("cuStreamWaitValue64", driver.wait_value);
  look_up("cuStreamWriteValue64", driver.write_value);
  return driver;
}

}  // namespace prun::cuda
