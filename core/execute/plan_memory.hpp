// The memory of a plan: one line of addresses, whose ranges lie in the spaces of a device. Kernels get
// pointers into it; the host reads and writes what lasts through here, while no step runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "plan/plan.hpp"
#include "prun/device.hpp"

namespace prun {

class PlanMemory {
 public:
  // All of them must outlive it. `fenced`: with room around the device's own memory that belongs to nobody.
  PlanMemory(const Program& program, const Plan& plan, DeviceInterface& device, bool fenced = false);
  ~PlanMemory();
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  // Where an offset of the line lies, for kernels and exchanges.
  std::byte* at(std::int64_t offset) const;

  // Zeroes the device's own memory: as it was when it was new.
  void clear() const;

  // The room around it, empty where there is none.
  std::array<std::span<std::byte>, 2> fences() const;

  // Bytes of a value of one instance that outlives the step (parameter, gradient, state), from `first` on.
  void read(Id value, std::int32_t instance, std::int64_t first, std::span<std::byte> to) const;
  void write(Id value, std::int32_t instance, std::int64_t first, std::span<const std::byte> from) const;
  // A staged value of a step's side, in memory of the host: inputs by microbatch, scalars with microbatch 0.
  std::byte* staged(Id value, std::int64_t step, std::int64_t microbatch) const;

 private:
  // Of what is asked of the device for a space.
  std::int64_t fence_of(Space space) const { return space == Space::device ? fence_ : 0; }
  std::int64_t bytes_of(Space space) const { return plan_.layout.bytes_in(space) + 2 * fence_of(space); }
  std::byte* lasting(Id value, std::int32_t instance) const;

  const Program& program_;
  const Plan& plan_;
  DeviceInterface& device_;
  std::int64_t fence_;
  std::byte* base_[spaces] = {};  // behind the fence
};

}  // namespace prun
