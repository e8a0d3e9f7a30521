// Memory for things of which not all are needed at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace prun {

inline constexpr std::int64_t alignment = 256;
constexpr std::int64_t align(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct Packed {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

// Offsets such that no two that conflict overlap: the largest first, each at the lowest that is free.
Packed pack(std::span<const std::int64_t> bytes,
            const std::function<bool(std::size_t, std::size_t)>& conflict);

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

}  // namespace prun
