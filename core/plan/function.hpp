// Plans one function: a kernel for each op, an address for each operand, scratch shared by lifetime.
#pragma once

#include <map>

#include "plan/plan.hpp"

namespace prun {

inline constexpr std::int64_t alignment = 256;
constexpr std::int64_t align(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Bytes that live from step `first` to step `last` of a function.
struct Lifetime {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int64_t offset = -1;
};

// Gives each an offset such that no two that live at once overlap; returns the bytes needed.
std::int64_t pack(std::vector<Lifetime>& lifetimes);
// Side by side, as they come.
std::int64_t pack_in_order(std::vector<Lifetime>& lifetimes);

// Where values of roles other than scratch live: filled by the planner before functions are planned.
struct Homes {
  std::map<Id, Address> of;
};

// Adds to `queues` the communicators it needs.
PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& homes,
                              Id segment, FunctionKind kind, std::vector<QueueInfo>& queues);

}  // namespace prun
