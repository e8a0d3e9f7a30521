// Gives memory that the host cannot reach by its address: callers get a range without any access, and the
// bytes lie elsewhere.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "host/host_memory.hpp"
#include "prun/error.hpp"

namespace prun::async {

class ShiftedMemory {
 public:
  void* allocate(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    void* address =
        ::mmap(nullptr, size + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PRUN_CHECK(address != MAP_FAILED, bytes, " bytes of addresses");
    const std::scoped_lock lock(mutex_);
    ranges_.push_back(
        {static_cast<std::byte*>(address), static_cast<std::byte*>(host::map_memory(bytes)), bytes});
    return address;
  }
  void release(void* address, std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    for (Range& range : ranges_)
      if (range.address == address) {
        host::unmap_memory(range.real, bytes);
        ::munmap(address, static_cast<std::size_t>(bytes) + 4096);
        range = ranges_.back();
        ranges_.pop_back();
        return;
      }
    PRUN_CHECK(false, "memory that this device does not have");
  }
  // Returns where the bytes are; an address that is not of this memory is returned as it is.
  void* real(const void* pointer) const {
    const auto* at = static_cast<const std::byte*>(pointer);
    const std::scoped_lock lock(mutex_);
    for (const Range& range : ranges_)
      if (at >= range.address && at < range.address + range.bytes) return range.real + (at - range.address);
    return const_cast<void*>(pointer);
  }

 private:
  struct Range {
    std::byte* address;
    std::byte* real;
    std::int64_t bytes;
  };
  mutable std::mutex mutex_;
  std::vector<Range> ranges_;
};

}  // namespace prun::async
