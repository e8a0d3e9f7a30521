// Holds the memory of a plan: one line of addresses, whose ranges are in the spaces of the rank's devices.
// Kernels get pointers into it; the host reads and writes persistent values through here, while no step runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/persistent.hpp"
#include "plan/plan.hpp"
#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- plan memory

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

// ------------------------------------------------------------------- tensors
// Finds which elements of a parameter, its gradient and its optimizer state this rank holds, and where.

// Returns the stretches of the rank's part of a value.
std::vector<Stretch> stretches(const Program& program, Id value, std::int64_t rank);

// States that elements [first, first + count) of the rank's part of a parameter are elements [at, at + count)
// of a value in the plan's memory. A packed parameter is held by several ranks, each some of it; `count` may
// be 0.
struct LocalPart {
  Id value = none;
  DType type = DType::f32;
  std::int64_t at = 0, first = 0, count = 0;
};

enum class Kept : std::uint8_t { parameter, gradient, master, before };

// Returns what this rank holds of a parameter, of its gradient (the sum over all ranks, once a step is done),
// of its master copy or of its value before the last update (count 0: there is none).
LocalPart local_part(const Program& program, std::int64_t rank, Id parameter, Kept kept);

// Returns what the rank holds of the parameter as it was so many updates before.
LocalPart held_before(const Program& program, Id parameter, std::int64_t updates);

// Returns the same for its optimizer state, in the order of the optimizer.
std::vector<LocalPart> local_states(const Program& program, std::int64_t rank, Id parameter);

// Returns what a kernel is told of the value that it updates, or a copy of; nothing if that is neither a
// parameter nor a part of several packed together.
std::optional<std::vector<TensorElements>> updated_elements(const Program& program, std::int64_t rank,
                                                            Id value, std::int64_t layer);

// Describes a run of held elements: `whole` is where it begins in the whole parameter, `offset` its first
// byte in a value of the plan's memory.
struct HeldRun {
  Id value = none;
  std::int32_t instance = 0;
  std::int64_t offset = 0;
  DType type = DType::f32;
  std::int64_t whole = 0, count = 0;

  std::vector<std::byte> read(const PlanMemory& memory) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(type)));
    memory.read(value, instance, offset, bytes);
    return bytes;
  }
};

// Calls body(run) for each run of held elements.
template <class Body>
void each_run(const Program& program, std::int64_t rank, Id parameter, std::int32_t instance,
              const LocalPart& have, Body&& body) {
  for (const Stretch& s : stretches(program, parameter, rank)) {
    const std::int64_t begin = std::max(s.part, have.first),
                       end = std::min(s.part + s.count, have.first + have.count);
    if (begin < end)
      body(HeldRun{have.value, instance, (have.at + begin - have.first) * size_of(have.type), have.type,
                   s.whole + begin - s.part, end - begin});
  }
}
template <class Body>
void each_held(const Program& program, std::int64_t rank, Id parameter, std::int32_t instance, Kept kept,
               Body&& body) {
  each_run(program, rank, parameter, instance, local_part(program, rank, parameter, kept), body);
}

}  // namespace prun
