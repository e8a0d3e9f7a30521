#include "plan/order/gradient_calls.hpp"

#include <algorithm>
#include <utility>

#include "plan/instances.hpp"

namespace prun {

GradientCalls::GradientCalls(const Plan& plan, const Work& work, std::span<const Bundle> bundles,
                             CallList& calls, UpdateCalls& updates)
    : plan_(plan),
      bundles_(bundles),
      calls_(calls),
      updates_(updates),
      contributions_(plan, work),
      summed_(held_instances(plan)) {}

void GradientCalls::clear() {
  for (const std::int32_t i : held_instances(plan_))
    if (plan_.find(FunctionKind::zero, i) != clearing_in_turn(plan_, i)) calls_.add(FunctionKind::zero, i);
}

void GradientCalls::before(const PassCall& call, Pass pass) {
  for (const std::int32_t i : contributions_.begun_by(call)) {
    const bool is_pending = std::find(pending_.begin(), pending_.end(), i) != pending_.end();
    if (pass == Pass::forward || is_pending) finish_pending();
    calls_.add_function(clearing_in_turn(plan_, i), i, -1);
  }
}

void GradientCalls::behind(const PassCall& call, std::int32_t microbatch) {
  for (const std::int32_t i : contributions_.completed_by(call, microbatch)) complete(i);
}

void GradientCalls::sum_tied() {
  for (const std::int32_t i : held_instances(plan_)) calls_.add(FunctionKind::tie, i);
}

void GradientCalls::complete_tied() {
  for (const std::int32_t i : held_instances(plan_))
    if (plan_.find(FunctionKind::tie, i) >= 0) complete(i);
}

// The ops behind the exchange on the compute queue would delay what comes next. They are put off until the
// next instance is complete, or these begin anew, or another one does in the next forward pass.
void GradientCalls::complete(std::int32_t instance) {
  std::erase(summed_, instance);
  summed_.push_back(instance);
  if (plan_.find(FunctionKind::reduce, instance) < 0) {
    updates_.complete({instance});
    return;
  }
  finish_pending();
  calls_.add_before_exchanges(FunctionKind::reduce, instance);
  const Bundle& bundle = bundles_[next_];
  if (instance != bundle.back()) return;
  calls_.add_exchanges(FunctionKind::reduce, bundle);
  pending_ = bundle;
  ++next_;
}

void GradientCalls::finish_pending() {
  const Bundle bundle = std::exchange(pending_, {});
  calls_.add_behind_exchanges(FunctionKind::reduce, bundle);
  updates_.complete(bundle);
}

void GradientCalls::measure() {
  for (const std::int32_t i : summed_) {
    if (!pending_.empty() && i == pending_.front()) finish_pending();
    calls_.add(FunctionKind::norm, i);
  }
}

}  // namespace prun
