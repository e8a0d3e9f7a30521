#include "plan/packing.hpp"

#include <algorithm>
#include <numeric>

namespace prun {

Packed pack(std::span<const std::int64_t> bytes,
            const std::function<bool(std::size_t, std::size_t)>& conflict) {
  Packed packed;
  packed.offsets.assign(bytes.size(), 0);
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t one : order) {
    std::int64_t& offset = packed.offsets[one];
    for (const std::size_t other : placed) {
      if (!conflict(one, other)) continue;
      if (offset + align(bytes[one]) <= packed.offsets[other]) break;
      offset = std::max(offset, packed.offsets[other] + align(bytes[other]));
    }
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), one,
                         [&](std::size_t a, std::size_t b) { return packed.offsets[a] < packed.offsets[b]; }),
        one);
    packed.bytes = std::max(packed.bytes, offset + align(bytes[one]));
  }
  return packed;
}

std::int64_t pack(std::vector<Lifetime>& lifetimes) {
  std::vector<std::int64_t> bytes;
  for (const Lifetime& lifetime : lifetimes) bytes.push_back(lifetime.bytes);
  const Packed packed = pack(bytes, [&](std::size_t a, std::size_t b) {
    return lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last;
  });
  for (std::size_t i = 0; i < lifetimes.size(); ++i) lifetimes[i].offset = packed.offsets[i];
  return packed.bytes;
}

std::int64_t pack_in_order(std::vector<Lifetime>& lifetimes) {
  std::int64_t total = 0;
  for (Lifetime& one : lifetimes) {
    one.offset = total;
    total += align(one.bytes);
  }
  return total;
}

}  // namespace prun
