// Assigns memory to things of which not all are needed at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun {

inline constexpr std::int64_t alignment = 256;
constexpr std::int64_t align(std::int64_t bytes, std::int64_t unit = alignment) {
  return (bytes + unit - 1) / unit * unit;
}
// Transfers of drives are aligned to this, on the drive and in memory.
inline constexpr std::int64_t drive_alignment = 4096;

// Lists, for each thing, those that need their memory at the same time; each pair is added once.
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
  std::int64_t bytes = 0;  // bytes of all things together
};

// Returns offsets such that no two things that conflict overlap: the largest comes first, each at the lowest
// that is free. Things from number `at_zero` on, which do not conflict with each other, are at 0.
Offsets assign_offsets(std::span<const std::int64_t> bytes, const Conflicts& conflicts,
                       std::size_t at_zero = static_cast<std::size_t>(-1));

// Describes bytes that live from step `first` to step `last` of a function.
struct Lifetime {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  std::int64_t offset = -1;
};

// Gives each lifetime an offset, a multiple of `unit`, such that no two that live at once overlap; returns
// the bytes needed.
std::int64_t assign_offsets(std::vector<Lifetime>& lifetimes, std::int64_t unit = alignment);
// Places them one after another, in the given order.
std::int64_t assign_offsets_in_order(std::vector<Lifetime>& lifetimes);

}  // namespace prun
