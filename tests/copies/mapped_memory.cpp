#include "mapped_memory.hpp"

#include "prun/error.hpp"

namespace prun::test {
namespace {

CUmemGenericAllocationHandle create(const copies::Driver& driver, std::size_t bytes,
                                    const CUmemLocation& where) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cuda::check(cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 12000, cudaEnableDefault, &result),
              "cuMemCreate");
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = where;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  driver.check(reinterpret_cast<decltype(&cuMemCreate)>(found)(&handle, bytes, &prop, 0), "taking memory");
  return handle;
}

}  // namespace

MappedMemory::MappedMemory(const copies::Driver& driver, std::int64_t bytes) : driver_(driver) {
  constexpr std::size_t unit = std::size_t{2} << 20;
  bytes_ = (static_cast<std::size_t>(bytes) + unit - 1) / unit * unit;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  cuda::check(cudaGetDevice(&access.location.id), "asking for the GPU");
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  handle_ = create(driver, bytes_, access.location);
  driver.check(driver.reserve(&address_, bytes_, 0, 0, 0), "reserving addresses");
  driver.check(driver.map(address_, bytes_, 0, handle_, 0), "mapping memory");
  driver.check(driver.set_access(address_, bytes_, &access, 1), "opening memory");
}

MappedMemory::~MappedMemory() {
  driver_.unmap(address_, bytes_);
  driver_.release(handle_);
  driver_.free_address(address_, bytes_);
}

}  // namespace prun::test
