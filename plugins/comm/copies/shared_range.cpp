#include "shared_range.hpp"

namespace prun::copies {

Allocation allocation_of(const Driver& driver, void* address) {
  Allocation found;
  CUdeviceptr begin = 0;
  driver.check(driver.address_range(&begin, &found.bytes, reinterpret_cast<CUdeviceptr>(address)),
               "asking for a range of memory");
  found.begin = reinterpret_cast<std::byte*>(begin);
  CUmemGenericAllocationHandle handle = 0;
  driver.check(driver.retain(&handle, address), "memory that was not backed by hand");
  int file = -1;
  const CUresult result = driver.export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  driver.release(handle);
  driver.check(result, "sharing memory");
  found.file = File(file);
  return found;
}

SharedRange::SharedRange(const Driver& driver, int file, std::size_t bytes) : driver_(driver), bytes_(bytes) {
  int gpu = 0;
  cuda::check(cudaGetDevice(&gpu), "asking for the GPU");
  try {
    driver.check(driver.import_handle(&handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                 "opening another GPU's memory");
    imported_ = true;
    driver.check(driver.reserve(&address_, bytes, 0, 0, 0), "reserving addresses");
    driver.check(driver.map(address_, bytes, 0, handle_, 0), "mapping another GPU's memory");
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver.check(driver.set_access(address_, bytes, &access, 1), "opening another GPU's memory");
  } catch (const Error&) {
    free();
    throw;
  }
}

SharedRange::~SharedRange() { free(); }

void SharedRange::free() {
  if (mapped_) driver_.unmap(address_, bytes_);
  if (imported_) driver_.release(handle_);
  if (address_) driver_.free_address(address_, bytes_);
}

}  // namespace prun::copies
