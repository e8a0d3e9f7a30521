// Places local gradients, until they are summed over the ranks, in memory that instances and scratch share.
// Example: backward of layer 2 writes where layer 4's gradients were, as soon as those are summed.
#include <algorithm>
#include <utility>

#include "plan/order/contributions.hpp"
#include "plan/order/needed_together.hpp"
#include "plan/order/pass_calls.hpp"
#include "plan/order/time_slots.hpp"

namespace prun {

namespace {

bool is_pass(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

// Returns true if a function runs once in a pass, as those of embedding and head do. The sums of the previous
// pass are done by then, so that it may use their memory as scratch without waiting long.
bool is_once_a_pass(const Plan& plan, const PlannedFunction& function) {
  return is_pass(function.kind) &&
         std::count_if(plan.instances.begin(), plan.instances.end(), [&](const Instance& instance) {
           return instance.segment == function.segment && !instance.is_stub();
         }) == 1;
}

// Collects what needs memory at the same time: instances, and after them the scratch of each function.
class UnreducedTogether {
 public:
  UnreducedTogether(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                    std::vector<std::int64_t> bytes)
      : plan_(plan),
        instances_(bytes.size()),
        contributions_(plan, work),
        together_(bytes),
        next_(reduced.begin()),
        end_(reduced.end()),
        bytes_(std::move(bytes)) {}

  void follow(const ScheduleCall& pass) {
    const std::vector<PassCall> calls = functions_of(plan_, pass);
    for (std::size_t at = 0; at < calls.size(); ++at) {
      const PassCall& call = calls[at];
      begin(contributions_.begun_by(call), pass.pass);
      if (at + 1 < calls.size()) begin(contributions_.returning_for(calls[at + 1]), pass.pass);
      for (const Bundle* const here : {&open_, &travelling_})
        together_.add(*here, {scratch_of(call.function)});
      for (const std::int32_t complete : contributions_.completed_by(call, pass.microbatch)) {
        if (next_ == end_ || next_->back() != complete) continue;
        travel(*next_++);
      }
      if (const Bundle aside = contributions_.set_aside_by(call); !aside.empty()) travel(aside);
    }
  }

  TimeSlots take() {
    for (std::size_t f = 0; f < plan_.functions.size(); ++f) keep_apart(static_cast<std::int32_t>(f));
    Offsets offsets = assign_offsets(bytes_, together_.conflicts(bytes_.size()), instances_);
    bytes_.resize(instances_);
    offsets.of.resize(instances_);
    return {std::move(bytes_), std::move(offsets)};
  }

 private:
  std::int32_t scratch_of(std::int32_t function) const {
    return static_cast<std::int32_t>(instances_) + function;
  }

  void travel(const Bundle& leaving) {
    travelling_ = leaving;
    for (const std::int32_t i : travelling_) std::erase(open_, i);
  }

  void begin(const Bundle& all_begun, Pass pass) {
    // order_calls() finishes pending sums before forward begins other gradients.
    if (pass == Pass::forward && !all_begun.empty()) travelling_.clear();
    for (const std::int32_t begun : all_begun) {
      open_.push_back(begun);
      together_.add({begun}, open_);
      together_.add({begun}, travelling_);
    }
  }

  // Gives separate memory to the scratch of a function that runs for many instances: it may run at any time.
  void keep_apart(std::int32_t number) {
    const PlannedFunction& function = plan_.functions[number];
    const bool scratch = function.scratch == Region::scratch && !function.scratch_bytes.empty();
    bytes_.push_back(scratch ? function.scratch_bytes.front() : 0);
    if (bytes_.back() == 0 || is_once_a_pass(plan_, function)) return;
    for (std::size_t i = 0; i < instances_; ++i)
      together_.add(static_cast<std::int32_t>(i), scratch_of(number));
  }

  const Plan& plan_;
  const std::size_t instances_;
  Contributions contributions_;
  NeededTogether together_;
  std::span<const Bundle>::iterator next_, end_;
  std::vector<std::int64_t> bytes_;
  Bundle open_, travelling_;
};

}  // namespace

TimeSlots unreduced_time_slots(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                               std::vector<std::int64_t> bytes) {
  UnreducedTogether together(plan, work, reduced, std::move(bytes));
  for (const ScheduleCall& pass : work.calls) together.follow(pass);
  return together.take();
}

}  // namespace prun
