// Finds pairs of instances that need memory at the same time, from the order of passes. Example: ZeRO-3
// prefetches layer 4 while layer 3 computes: (3, 4) is a pair, (2, 4) is not, so layers 2 and 4 may share
// gathered memory.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/order/bundles.hpp"

namespace prun {

// Collects these pairs; an instance that needs no memory conflicts with none. A pair is found once a
// microbatch: repeated ones are dropped before they take much memory.
class NeededTogether {
 public:
  // `bytes` are those of each instance; a thing with a number beyond them needs memory as well.
  explicit NeededTogether(std::span<const std::int64_t> bytes);

  void add(std::int32_t a, std::int32_t b);
  void add(const Bundle& some, const Bundle& others);
  // Returns the conflicts of `things` things, of which instances come first.
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
