// Memory of the host that a device copies from and to at full speed.
#pragma once

#include <cstddef>

#include "prun/device.hpp"

namespace prun {

class Pinned {
 public:
  Pinned(DeviceInterface& device, std::int64_t bytes) : device_(device), bytes_(bytes) {
    raise(device.allocate(Space::pinned, bytes, &memory_));
  }
  ~Pinned() { device_.release(Space::pinned, memory_, bytes_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  DeviceInterface& device_;
  const std::int64_t bytes_;
  void* memory_ = nullptr;
};

}  // namespace prun
