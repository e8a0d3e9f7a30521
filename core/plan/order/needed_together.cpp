#include "plan/order/needed_together.hpp"

#include <algorithm>

namespace prun {

NeededTogether::NeededTogether(std::span<const std::int64_t> bytes) {
  for (const std::int64_t of : bytes) needs_none_.push_back(of == 0);
}

void NeededTogether::add(std::int32_t a, std::int32_t b) {
  if (a == b || needs_none(a) || needs_none(b)) return;
  pairs_.emplace_back(std::minmax(a, b));
  if (pairs_.size() < drop_at_) return;
  drop_repeated();
  drop_at_ = std::max(drop_at_, 2 * pairs_.size());
}

void NeededTogether::add(const Bundle& some, const Bundle& others) {
  for (const std::int32_t a : some)
    for (std::size_t i = 0; !needs_none(a) && i < others.size(); ++i) add(a, others[i]);
}

Conflicts NeededTogether::conflicts(std::size_t things) {
  drop_repeated();
  Conflicts conflicts(things);
  for (const auto& [a, b] : pairs_) conflicts.add(static_cast<std::size_t>(a), static_cast<std::size_t>(b));
  return conflicts;
}

void NeededTogether::drop_repeated() {
  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
}

}  // namespace prun
