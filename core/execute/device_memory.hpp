// Holds memory that a device allocates, for as long as this lives.
#pragma once

#include <cstddef>
#include <span>

#include "prun/device.hpp"

namespace prun {

class DeviceMemory {
 public:
  DeviceMemory(DeviceInterface& device, Space space, std::int64_t bytes)
      : device_(device), space_(space), bytes_(bytes) {
    raise(device.allocate(space, bytes, &memory_));
  }
  ~DeviceMemory() { device_.release(space_, memory_, bytes_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::span<std::byte> bytes() const { return {data(), static_cast<std::size_t>(bytes_)}; }

 private:
  DeviceInterface& device_;
  const Space space_;
  const std::int64_t bytes_;
  void* memory_ = nullptr;
};

// Holds memory of the host that a device copies from and to at full speed.
class Pinned : public DeviceMemory {
 public:
  Pinned(DeviceInterface& device, std::int64_t bytes) : DeviceMemory(device, Space::pinned, bytes) {}
};

}  // namespace prun
