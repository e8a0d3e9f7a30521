#include "plan/offsets.hpp"

#include <algorithm>
#include <numeric>

namespace prun {

void Conflicts::add(std::size_t a, std::size_t b) {
  with_[a].push_back(b);
  with_[b].push_back(a);
}

Offsets assign_offsets(std::span<const std::int64_t> bytes, const Conflicts& conflicts, std::size_t at_zero) {
  Offsets offsets;
  offsets.of.assign(bytes.size(), -1);
  for (std::size_t i = at_zero; i < bytes.size(); ++i) {
    offsets.of[i] = 0;
    offsets.bytes = std::max(offsets.bytes, align(bytes[i]));
  }
  std::vector<std::size_t> order(std::min(bytes.size(), at_zero));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  for (const std::size_t one : order) {
    std::vector<std::size_t> placed = conflicts.with(one);
    std::erase_if(placed, [&](std::size_t other) { return offsets.of[other] < 0; });
    std::sort(placed.begin(), placed.end(),
              [&](std::size_t a, std::size_t b) { return offsets.of[a] < offsets.of[b]; });
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (offset + align(bytes[one]) <= offsets.of[other]) break;
      offset = std::max(offset, offsets.of[other] + align(bytes[other]));
    }
    offsets.of[one] = offset;
    offsets.bytes = std::max(offsets.bytes, offset + align(bytes[one]));
  }
  return offsets;
}

std::int64_t assign_offsets(std::vector<Lifetime>& lifetimes, std::int64_t unit) {
  std::vector<std::int64_t> bytes;
  Conflicts conflicts(lifetimes.size());
  for (std::size_t a = 0; a < lifetimes.size(); ++a) {
    bytes.push_back(align(lifetimes[a].bytes, unit));
    for (std::size_t b = 0; b < a; ++b)
      if (lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last)
        conflicts.add(a, b);
  }
  const Offsets offsets = assign_offsets(bytes, conflicts);
  for (std::size_t i = 0; i < lifetimes.size(); ++i) lifetimes[i].offset = offsets.of[i];
  return offsets.bytes;
}

std::int64_t assign_offsets_in_order(std::vector<Lifetime>& lifetimes) {
  std::int64_t total = 0;
  for (Lifetime& one : lifetimes) {
    one.offset = total;
    total += align(one.bytes);
  }
  return total;
}

}  // namespace prun
