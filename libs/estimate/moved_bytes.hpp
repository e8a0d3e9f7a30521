// Counts the bytes of an exchange, and those that a step copies.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Returns the bytes of an operation among `members` ranks: what each has of the larger of `in` and `out`.
std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members);

// Says whether a step is a copy from the recipe's device's own memory to other memory, or back.
enum class Direction : std::uint8_t { stays, to_host, to_device };
Direction direction_of(const Program& program, const Plan& plan, const PlannedStep& step);

// Counts bytes that a step copies from the recipe's device's own memory to the host's, and back; and those
// that tiers read and write.
struct MovedBytes {
  std::int64_t to_host = 0, to_device = 0;
  std::int64_t from_disk = 0, to_disk = 0;
};
MovedBytes moved_bytes(const Program& program, const Plan& plan);

// Returns the number of the link that a copy goes over: there is one each way between the recipe's device and
// other memory, and between each tier and memory; -1: none.
std::int32_t link_of(const Program& program, const Plan& plan, const PlannedStep& step);

// Counts bytes that a step moves through host memory: for a copy, each side that is there; for what a further
// device computes on the host's cores, all that the op reads and writes. What the recipe's device computes
// there finds much of it in caches, and is left out. `on_host` says by device whether its memory is the
// host's.
double host_bytes(const Program& program, const Plan& plan, const PlannedStep& step,
                  const Numbered<bool>& on_host);

}  // namespace prun
