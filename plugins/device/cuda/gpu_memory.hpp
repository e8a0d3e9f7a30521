// Allocates memory of a GPU, and host memory that it reaches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "driver.hpp"
#include "prun/device.hpp"

namespace prun::cuda {

// Is a range of addresses with physical memory behind it, mapped by hand, so that a communication library can
// register it and another process import it. The memory is zeroed.
class DeviceRange {
 public:
  // Refuses more than the GPU has free, with the numbers.
  DeviceRange(const Driver& driver, int ordinal, std::int64_t bytes);
  ~DeviceRange();
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  void free();

  const Driver& driver_;
  std::size_t bytes_ = 0;  // a multiple of the granularity
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool created_ = false, mapped_ = false;
};

// Is page-locked host memory at the same address for the host and all GPUs, zeroed and aligned to 4096. All
// cores touch its pages first, and one call locks them then: the driver alone zeroes them by one thread, and
// a copy must be within what was locked by one call.
class PinnedRange {
 public:
  explicit PinnedRange(std::int64_t bytes);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

  void* data() const { return memory_; }
  // Returns a note on the range: what took long, and whether it is in small pages.
  const std::string& note() const { return note_; }

 private:
  void lock();

  const std::int64_t bytes_;
  void* memory_ = nullptr;
  std::string note_;
};

// Lists what a device has allocated, by address. Any thread may use it.
class MemoryRanges {
 public:
  void* add_device(const Driver& driver, int ordinal, std::int64_t bytes);
  // `note` is that of PinnedRange.
  void* add_pinned(std::int64_t bytes, std::string& note);
  void release(Space space, void* memory);

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::unique_ptr<DeviceRange>> device_;
  std::unordered_map<void*, std::unique_ptr<PinnedRange>> pinned_;
};

}  // namespace prun::cuda
