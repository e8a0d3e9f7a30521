// Computes checksums of persistent values where they are stored, by the op `checksum` of the device that has
// them. A tier computes nothing: what it keeps passes through memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execute/plan_memory.hpp"

namespace prun {

// Returns the sum that the op `checksum` computes, of elements of `element` bytes; `first` is the number of
// the first one.
std::uint64_t checksum_of(std::int64_t element, std::span<const std::byte> bytes, std::int64_t first);

// Names elements [first, first + count) of a value of one instance that outlives the step.
struct PersistentPart {
  Id value = none;
  std::int32_t instance = 0;
  std::int64_t first = 0, count = 0;
};

class DeviceChecksums {
 public:
  // It is made before anything that lasts is written. All of these must outlive it.
  DeviceChecksums(const Program& program, const PlanMemory& memory, const Devices& devices,
                  const std::vector<PersistentPart>& parts);
  ~DeviceChecksums();
  DeviceChecksums(const DeviceChecksums&) = delete;
  DeviceChecksums& operator=(const DeviceChecksums&) = delete;

  // Returns checksums by part. It is called while no step runs.
  std::vector<std::uint64_t> take();

 private:
  class OfDevice;
  class OfTier;
  std::vector<std::unique_ptr<OfDevice>> devices_;
  std::vector<std::unique_ptr<OfTier>> tiers_;
  std::size_t parts_;
};

}  // namespace prun
