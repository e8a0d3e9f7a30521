// Assigns offsets to things of which not all are needed at once, so that they share memory. Example: scratch
// values with lifetimes [0, 2], [1, 3] and [4, 5]: the third reuses the bytes of the first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

inline constexpr std::int64_t alignment = 256;
constexpr std::int64_t align(std::int64_t bytes, std::int64_t unit = alignment) {
  return (bytes + unit - 1) / unit * unit;
}
// Transfers from and to drives have it, on the drive and in memory.
inline constexpr std::int64_t drive_alignment = 4096;

// For each thing, those that need memory at the same time; each pair is added once.
class Conflicts {
 public:
  explicit Conflicts(std::size_t things) : with_(things) {}

  void add(std::size_t a, std::size_t b);
  const std::vector<std::size_t>& with(std::size_t thing) const { return with_[thing]; }

 private:
  std::vector<std::vector<std::size_t>> with_;
};

struct Offsets {
  std::vector<std::int64_t> of;
  std::int64_t bytes = 0;  // of all things
};

// Assigns offsets so that no two things in conflict overlap: largest first, each at the lowest free offset.
// Things from `at_zero` on, which do not conflict with each other, are at 0.
Offsets assign_offsets(std::span<const std::int64_t> bytes, const Conflicts& conflicts,
                       std::size_t at_zero = static_cast<std::size_t>(-1));

// Bytes used from step `first` to step `last`.
struct Lifetime {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int64_t offset = -1;
};

// Assigns offsets, multiples of `unit`, so that no two that are alive together overlap. Returns the bytes
// needed.
std::int64_t assign_offsets(std::vector<Lifetime>& lifetimes, std::int64_t unit = alignment);
// Places them in the given order, without sharing.
std::int64_t assign_offsets_in_order(std::vector<Lifetime>& lifetimes);

}  // namespace prun
