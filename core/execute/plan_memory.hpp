// Holds the memory of a plan: one line of addresses, whose ranges are in the spaces of the rank's devices.
// Kernels get pointers into it; the host reads and writes persistent values through here, while no step runs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "prun/device.hpp"

namespace prun {

// Lists devices by number: the recipe's is first.
using Devices = Numbered<DeviceInterface*>;

class PlanMemory {
 public:
  // All of these must outlive the memory. `fenced` puts unused room around each range.
  PlanMemory(const Program& program, const Plan& plan, const Devices& devices, bool fenced = false);
  // Uses the memory of another plan, over which this one is made.
  PlanMemory(const Program& program, const Plan& plan, const PlanMemory& base_program);
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  // Returns the address of an offset of the line, for kernels and exchanges.
  std::byte* at(std::int64_t offset) const { return range_of(offset).at(offset); }

  // Zeroes all of it, so that it is as it was when it was new.
  void clear() const;
  // Returns all of the first range.
  std::span<std::byte> of_device() const {
    return {ranges_.front()->at(0), static_cast<std::size_t>(plan_.layout.ranges.front().bytes())};
  }

  // Returns the room around the ranges, if there is any.
  const std::vector<std::span<std::byte>>& fences() const { return fences_; }

  // Reads bytes of a value of one instance that outlives the step (parameter, gradient, state), from `first`
  // on; the next function writes them.
  void read(Id value, std::int32_t instance, std::int64_t first, std::span<std::byte> to) const;
  void write(Id value, std::int32_t instance, std::int64_t first, std::span<const std::byte> from) const;
  // Says where such a value is stored, for kernels of the device of that number.
  struct Persistent {
    std::byte* data = nullptr;
    std::int32_t device = 0;
  };
  Persistent persistent_at(Id value, std::int32_t instance) const;
  // Returns a staged value of a step's side, in memory of the host: inputs by microbatch, scalars with
  // microbatch 0.
  std::byte* staged(Id value, std::int64_t step, std::int64_t microbatch) const;

 private:
  // Holds what a device has allocated for a range of the layout, the room around it included.
  class Range {
   public:
    Range(const Layout::Range& planned, DeviceInterface& device, std::int64_t fence);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

    std::byte* at(std::int64_t offset) const { return base_ + (offset - planned_.begin); }
    std::int32_t number() const { return planned_.place.device; }
    bool is_the_hosts() const {
      return planned_.place.space == Space::pinned || planned_.place.space == Space::host;
    }

    DeviceInterface& device;

   private:
    std::int64_t bytes() const { return planned_.bytes() + 2 * fence_; }

    const Layout::Range& planned_;
    const std::int64_t fence_;
    std::byte* base_ = nullptr;  // begin, behind the fence
  };

  const Range& range_of(std::int64_t offset) const;
  std::int64_t persistent(Id value, std::int32_t instance) const;

  const Program& program_;
  const Plan& plan_;
  std::vector<std::shared_ptr<Range>> ranges_;  // ranges of the layout
  std::vector<std::span<std::byte>> fences_;
};

}  // namespace prun
