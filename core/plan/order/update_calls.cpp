#include "plan/order/update_calls.hpp"

#include <algorithm>
#include <utility>

#include "plan/instances.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {
namespace {

constexpr std::int32_t step_instance = 0;

void add_values_of(const Plan& plan, FunctionKind kind, std::int32_t instance, std::set<Id>& values) {
  const std::int32_t function = plan.find(kind, instance);
  for (std::int32_t piece = 0; function >= 0 && piece < piece_count(plan, function); ++piece)
    each_value(plan, function, piece, [&](Id value) { values.insert(value); });
}

}  // namespace

UpdateCalls::UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together,
                         std::int32_t speculated, CallList& calls)
    : plan_(plan),
      bundles_(bundles),
      calls_(calls),
      are_free_(!together && need_nothing_of_the_norm()),
      may_speculate_(together || are_free_ ? 0 : speculated) {
  for (const Bundle& bundle : bundles) updated_.insert(updated_.end(), bundle.begin(), bundle.end());
  left_.insert(updated_.begin(), updated_.end());
}

// Returns true if updates may come before the norm: they touch nothing that `finish` does, they have no
// collectives, and either gradients are summed as they are complete or another device updates.
bool UpdateCalls::need_nothing_of_the_norm() const {
  std::set<Id> of_finish, of_updates;
  add_values_of(plan_, FunctionKind::finish, step_instance, of_finish);
  add_values_of(plan_, FunctionKind::update, step_instance, of_updates);
  bool free = !of_updates.empty();
  for (const std::int32_t i : held_instances(plan_)) {
    const std::int32_t function = plan_.find(FunctionKind::update, i);
    if (function < 0) continue;
    add_values_of(plan_, FunctionKind::update, i, of_updates);
    const Exchanges exchanges = exchanges_of(plan_, function);
    free &= exchanges.first == exchanges.last &&
            (plan_.find(FunctionKind::reduce, i) >= 0 || is_updated_elsewhere(i));
  }
  return free && std::none_of(of_updates.begin(), of_updates.end(),
                              [&](Id value) { return of_finish.contains(value); });
}

// Returns true for updates that are left to the end of the step: one in four of those on another device. They
// overlap with the next forward, which takes about a quarter of the time of both passes; so the others keep
// up with backward, and what forward needs first is ready first. Updates whose gradients occupy memory that
// others need are never put off.
bool UpdateCalls::is_put_off(std::int32_t instance) const {
  constexpr std::ptrdiff_t one_in = 4;
  const std::ptrdiff_t place = std::find(updated_.begin(), updated_.end(), instance) - updated_.begin();
  return place > 0 && place % one_in == 0 && is_updated_elsewhere(instance) && !reads_arrived(instance);
}

// Returns true if an update reads gradients from memory that other instances need after it.
bool UpdateCalls::reads_arrived(std::int32_t instance) const {
  return touches_arrived(plan_.functions[plan_.find(FunctionKind::update, instance)]);
}

bool UpdateCalls::is_updated_elsewhere(std::int32_t instance) const {
  const std::int32_t function = plan_.find(FunctionKind::update, instance);
  if (function < 0) return false;
  const std::vector<Piece>& all = plan_.functions[function].pieces;
  return std::any_of(all.begin(), all.end(), [&](const Piece& piece) {
    const QueueInfo& queue = plan_.queues[piece.queue];
    return queue.workers && queue.device != 0;
  });
}

// Returns true if an update's collectives are of scratch, which all instances share.
bool UpdateCalls::exchanges_scratch(std::int32_t instance) const {
  const std::int32_t function = plan_.find(FunctionKind::update, instance);
  if (function < 0) return false;
  const PlannedFunction& update = plan_.functions[function];
  return std::any_of(update.steps.begin(), update.steps.end(), [&](const PlannedStep& step) {
    return step.exchange &&
           (step.exchange->in.region == update.scratch || step.exchange->out.region == update.scratch);
  });
}

void UpdateCalls::complete(const Bundle& bundle) {
  if (!are_free_) return speculate(bundle);
  for (const std::int32_t i : bundle)
    if (!is_put_off(i) && left_.erase(i) > 0) {
      begin();
      calls_.add(FunctionKind::update, i);
    }
}

void UpdateCalls::speculate(const Bundle& bundle) {
  for (const std::int32_t i : bundle) {
    if (may_speculate_ == 0 || plan_.find(FunctionKind::speculate, i) < 0) continue;
    begin_speculation();
    calls_.add(FunctionKind::speculate, i);
    speculated_.insert(i);
    --may_speculate_;
  }
}

void UpdateCalls::update_the_rest() {
  begin();
  if (are_free_)
    for (const std::int32_t i : left_) calls_.add(FunctionKind::update, i);
  else
    for (const Bundle& bundle : bundles_) update(bundle);
}

// Copies what all updates read to their device: first what is known before the norm; begin() the rest.
void UpdateCalls::begin_speculation() {
  if (!std::exchange(begun_speculation_, true)) calls_.add(FunctionKind::speculate, step_instance);
}
void UpdateCalls::begin() {
  begin_speculation();
  if (!std::exchange(begun_, true)) calls_.add(FunctionKind::update, step_instance);
}

// Adds the updates of a bundle. Their collectives are joined unless they are of scratch, which the next
// instance would overwrite before this one's later pieces read it.
void UpdateCalls::update(Bundle bundle) {
  for (const std::int32_t i : bundle)
    if (speculated_.contains(i)) calls_.add(FunctionKind::settle, i);
  std::erase_if(bundle, [&](std::int32_t i) { return speculated_.contains(i); });
  if (std::any_of(bundle.begin(), bundle.end(), [&](std::int32_t i) { return exchanges_scratch(i); })) {
    for (const std::int32_t i : bundle) calls_.add(FunctionKind::update, i);
    return;
  }
  for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::update, i);
  calls_.add_exchanges(FunctionKind::update, bundle);
  calls_.add_behind_exchanges(FunctionKind::update, bundle);
}

}  // namespace prun
