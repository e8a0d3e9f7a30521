#include "plan/order/gather_calls.hpp"

namespace prun {

void GatherCalls::gather_for(const PassCall& call) {
  if (touched_.by(call).empty()) return;
  if (used_ == 0 && calls_of_use_ == 0) renew();
  if (calls_of_use_ == 0) {
    gather(uses_[used_].instances);
    if (used_ + 1 < uses_.size()) gather(uses_[used_ + 1].instances);
    finish(uses_[used_].instances);
  }
  if (++calls_of_use_ < uses_[used_].calls) return;
  ++used_;
  calls_of_use_ = 0;
}

// Copies have memory of their own, so all are under way as a step begins, in the order in which they are
// used.
void GatherCalls::renew() {
  for (const Bundle& bundle : renewed_) {
    for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::renew, i);
    calls_.add_exchanges(FunctionKind::renew, bundle);
    calls_.add_behind_exchanges(FunctionKind::renew, bundle);
  }
}

// Gathers only what has been overwritten since the last gather.
void GatherCalls::gather(Bundle bundle) {
  std::erase_if(bundle, [&](std::int32_t i) { return !holds_.insert(i).second; });
  for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::gather, i);
  calls_.add_exchanges(FunctionKind::gather, bundle);
  for (const std::int32_t i : bundle)
    std::erase_if(holds_, [&](std::int32_t other) { return other != i && time_slots_.overlap(other, i); });
  coming_.insert(bundle.begin(), bundle.end());
}

// The ops behind an exchange would delay what is computed meanwhile, so they are left until their use.
void GatherCalls::finish(Bundle bundle) {
  std::erase_if(bundle, [&](std::int32_t i) { return coming_.erase(i) == 0; });
  calls_.add_behind_exchanges(FunctionKind::gather, bundle);
}

}  // namespace prun
