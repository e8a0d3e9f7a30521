#include "gpu_memory.hpp"

#include <algorithm>
#include <chrono>

#include "host/host_memory.hpp"

namespace prun::cuda {
namespace {

CUmemAllocationProp on_gpu(int ordinal) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;  // a peer may import it
  return prop;
}

}  // namespace

DeviceRange::DeviceRange(const Driver& driver, int ordinal, std::int64_t bytes) : driver_(driver) {
  const CUmemAllocationProp prop = on_gpu(ordinal);
  std::size_t unit = 0, free_bytes = 0, all = 0;
  driver_.check(driver_.granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "granularity");
  bytes_ = (static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)) + unit - 1) / unit * unit;
  check(cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
  if (bytes_ > free_bytes)
    throw_error(
        ErrorCode::unsupported, "device cuda: ", bytes, " bytes do not fit on GPU ", ordinal, ": ",
        free_bytes, " of ", all,
        " are free; use a smaller model or batch, recomputation, or more GPUs, or end what else uses it");
  try {
    driver_.check(driver_.reserve(&address_, bytes_, unit, 0, 0), "reserving addresses");
    driver_.check(driver_.create(&handle_, bytes_, &prop, 0), "taking memory");
    created_ = true;
    driver_.check(driver_.map(address_, bytes_, 0, handle_, 0), "mapping memory");
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver_.check(driver_.set_access(address_, bytes_, &access, 1), "opening memory");
    check(cudaMemset(data(), 0, bytes_), "clearing memory");
    check(cudaDeviceSynchronize(), "clearing memory");
  } catch (const Error&) {
    free();
    throw;
  }
}

DeviceRange::~DeviceRange() { free(); }

void DeviceRange::free() {
  if (mapped_) driver_.unmap(address_, bytes_);
  if (created_) driver_.release(handle_);
  if (address_) driver_.free_address(address_, bytes_);
}

PinnedRange::PinnedRange(std::int64_t bytes) : bytes_(std::max<std::int64_t>(bytes, 1)) {
  memory_ = host::map_memory(bytes_, &note_);
  const auto begin = std::chrono::steady_clock::now();
  try {
    lock();
  } catch (const Error&) {
    host::unmap_memory(memory_, bytes_);
    throw;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  host::add_note(note_, host::long_time_text("page-locking", bytes_, took.count()));
}

void PinnedRange::lock() {
  const cudaError_t status = cudaHostRegister(memory_, static_cast<std::size_t>(bytes_),
                                              cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status == cudaErrorMemoryAllocation)
    throw_error(
        ErrorCode::unsupported, "device cuda: the driver does not page-lock ", bytes_,
        " bytes of host memory; use a smaller model or batch, more ranks (drivers refuse 512 GiB and more "
        "in one piece) or raise the limit on locked memory");
  check(status, "page-locking host memory");
  void* seen = nullptr;
  if (cudaHostGetDevicePointer(&seen, memory_, 0) == cudaSuccess && seen == memory_) return;
  cudaHostUnregister(memory_);
  throw_error(
      ErrorCode::unsupported,
      "device cuda: this GPU sees page-locked host memory at other addresses than the host; use a 64-bit "
      "Linux with unified addressing");
}

PinnedRange::~PinnedRange() {
  cudaHostUnregister(memory_);
  host::unmap_memory(memory_, bytes_);
}

void* MemoryRanges::add_device(const Driver& driver, int ordinal, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto range = std::make_unique<DeviceRange>(driver, ordinal, bytes);
  void* const at = range->data();
  device_[at] = std::move(range);
  return at;
}

void* MemoryRanges::add_pinned(std::int64_t bytes, std::string& note) {
  const std::scoped_lock lock(mutex_);
  auto range = std::make_unique<PinnedRange>(bytes);
  void* const at = range->data();
  note = range->note();
  pinned_[at] = std::move(range);
  return at;
}

void MemoryRanges::release(Space space, void* memory) {
  const std::scoped_lock lock(mutex_);
  if (space == Space::device)
    device_.erase(memory);
  else
    pinned_.erase(memory);
}

}  // namespace prun::cuda
