// Holds counters that a device reaches, each on a cache line of its own.
#pragma once

#include <cstddef>
#include <new>

#include "execute/device_memory.hpp"
#include "prun/device.hpp"

namespace prun {

class Counters {
 public:
  Counters(DeviceInterface& device, std::size_t count)
      : memory_(device, static_cast<std::int64_t>(count) * cache_line) {
    for (std::size_t i = 0; i < count; ++i) new (&(*this)[i]) Counter(0);
  }
  Counter& operator[](std::size_t i) const {
    return *reinterpret_cast<Counter*>(memory_.data() + i * cache_line);
  }

 private:
  static constexpr std::int64_t cache_line = 64;
  Pinned memory_;
};

}  // namespace prun
