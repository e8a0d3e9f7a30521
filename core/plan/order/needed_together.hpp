// Collects the pairs of instances that need memory at the same time, from which offsets follow. Example:
// ZeRO-3 prefetches layer 4 while layer 3 computes: (3, 4) is a pair and (2, 4) is not, so layers 2 and 4 may
// have their gathered parameters at the same address.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/order/bundles.hpp"

namespace prun {

// Ignores instances without bytes. A pair may be added once for each microbatch; duplicates are removed as
// the list grows.
class NeededTogether {
 public:
  // `bytes`: of each instance. Higher numbers stand for other users of memory, such as a function's scratch.
  explicit NeededTogether(std::span<const std::int64_t> bytes);

  void add(std::int32_t a, std::int32_t b);
  void add(const Bundle& some, const Bundle& others);
  // Returns the conflicts among the numbers below `things`.
  Conflicts conflicts(std::size_t things);

 private:
  bool needs_none(std::int32_t instance) const {
    const auto at = static_cast<std::size_t>(instance);
    return at < needs_none_.size() && needs_none_[at];
  }
  void drop_repeated();

  std::vector<std::pair<std::int32_t, std::int32_t>> pairs_;
  std::size_t drop_at_ = 4096;
  std::vector<bool> needs_none_;
};

}  // namespace prun
