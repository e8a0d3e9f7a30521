// Exchanges of memory that only a device reaches, by a comm plugin that moves the host's: through pinned
// memory, copied there before and back after.
#pragma once

#include <span>

#include "execute/device_memory.hpp"
#include "prun/comm.hpp"

namespace prun {

class Staging {
 public:
  // Of the operations of a queue, which has one under way at a time. The device must outlive it.
  Staging(DeviceInterface& device, std::span<const CommOp> ops, std::int64_t members);

  // The pinned memory.
  std::span<std::byte> memory() const { return memory_.bytes(); }
  // The operation as it is done there: in its own place where it was, apart where it was apart.
  CommOp staged(const CommOp& op) const;
  // What the operation reads is copied there; what it wrote, back.
  Status bring(const CommOp& op) const;
  Status take(const CommOp& op) const;

 private:
  DeviceInterface& device_;
  const std::int64_t members_;
  Pinned memory_;
};

}  // namespace prun
