#include "plan/order/time_slots.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/order/bundles.hpp"
#include "plan/order/update_calls.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- needed together
// Collects the pairs of instances that need memory at the same time, from which offsets follow. Example:
// ZeRO-3 prefetches layer 4 while layer 3 computes: (3, 4) is a pair and (2, 4) is not, so layers 2 and 4 may
// have their gathered parameters at the same address.

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

// ------------------------------------------------------------------- used together

Bundle both_of(Bundle bundle, const Bundle& more) {
  for (const std::int32_t i : more)
    if (std::find(bundle.begin(), bundle.end(), i) == bundle.end()) bundle.push_back(i);
  return bundle;
}

// Joins consecutive calls into uses as long as the gathered parameters of two neighbouring uses need no more
// memory than two bundles, or than the two neighbouring calls that need most.
class Uses {
 public:
  Uses(std::vector<Bundle> calls, const Bundling& bundling)
      : calls_(std::move(calls)), bundling_(bundling), room_(2 * bundling.most()) {
    for (std::size_t i = 1; i < calls_.size(); ++i) room_ = std::max(room_, bytes(calls_[i - 1], calls_[i]));
  }

  GatheredUses run() {
    GatheredUses uses;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Bundle before = uses.size() > 1 ? uses[uses.size() - 2].instances : Bundle{};
      if (uses.empty() || !may_join(before, uses.back().instances, i))
        uses.push_back({calls_[i], 1});
      else
        uses.back() = {both_of(std::move(uses.back().instances), calls_[i]), uses.back().calls + 1};
    }
    return uses;
  }

 private:
  std::int64_t bytes(const Bundle& a, const Bundle& b) const { return bundling_.bytes(both_of(a, b)); }

  bool may_join(const Bundle& before, const Bundle& use, std::size_t call) const {
    const Bundle both = both_of(use, calls_[call]);
    if (both.size() == use.size()) return true;
    const Bundle after = call + 1 < calls_.size() ? calls_[call + 1] : Bundle{};
    return bundling_.takes(both) && bytes(before, both) <= room_ && bytes(both, after) <= room_;
  }

  std::vector<Bundle> calls_;  // instances that each call touches
  const Bundling& bundling_;
  std::int64_t room_;
};

}  // namespace

GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling) {
  const TouchedGathered touched(plan);
  std::vector<Bundle> calls;
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass))
      if (Bundle instances = touched.by(call); !instances.empty()) calls.push_back(std::move(instances));
  return Uses(std::move(calls), bundling).run();
}

std::vector<std::int32_t> renewed_in_order(const Plan& plan, const GatheredUses& uses) {
  std::vector<std::int32_t> renewed;
  for (const GatheredUse& use : uses)
    for (const std::int32_t i : use.instances)
      if (plan.find(FunctionKind::renew, i) >= 0 &&
          std::find(renewed.begin(), renewed.end(), i) == renewed.end())
        renewed.push_back(i);
  return renewed;
}

std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling) {
  Contributions contributions(plan, work);
  std::vector<Bundle> reduced;
  const auto reduces = [&](std::int32_t i) { return plan.find(FunctionKind::reduce, i) >= 0; };
  const auto add = [&](const std::vector<std::int32_t>& complete) {
    for (Bundle& bundle : bundling.of(complete)) reduced.push_back(std::move(bundle));
  };
  for (const ScheduleCall& pass : work.calls) {
    std::vector<std::int32_t> complete;
    for (const PassCall& call : functions_of(plan, pass))
      for (const std::int32_t i : contributions.completed_by(call, pass.microbatch))
        if (reduces(i)) complete.push_back(i);
    add(complete);
  }
  std::vector<std::int32_t> tied;
  for (std::size_t i = 0; i < plan.instances.size(); ++i)
    if (const auto at = static_cast<std::int32_t>(i);
        !plan.instances[i].is_stub() && plan.find(FunctionKind::tie, at) >= 0 && reduces(at))
      tied.push_back(at);
  add(tied);
  return reduced;
}

namespace {

// ------------------------------------------------------------------- time slots

TimeSlots time_slots_of(std::vector<std::int64_t> bytes, NeededTogether together) {
  Offsets offsets = assign_offsets(bytes, together.conflicts(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace

bool TimeSlots::overlap(std::int32_t a, std::int32_t b) const {
  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
  return offsets.of[x] < offsets.of[y] + bytes[y] && offsets.of[y] < offsets.of[x] + bytes[x];
}

Bundle made_here(const Program& program, const Plan& plan) {
  Bundle made;
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    const auto instance = static_cast<std::int32_t>(i);
    const std::int32_t function = plan.find(FunctionKind::gather, instance);
    if (function < 0 || plan.instances[i].is_stub()) continue;
    const std::vector<PlannedStep>& steps = plan.functions[function].steps;
    const bool computes = std::all_of(steps.begin(), steps.end(), [&](const PlannedStep& step) {
      if (step.exchange || program.op(step.op).def->copies) return false;
      const Value& result = program.value(program.op(step.op).operands.back());
      return result.role == Role::fetched && result.bucket < 0;
    });
    if (computes) made.push_back(instance);
  }
  return made;
}

TimeSlots gathered_time_slots(const GatheredUses& uses, const Bundle& made_here,
                              std::vector<std::int64_t> bytes) {
  NeededTogether together(bytes);
  for (const std::int32_t made : made_here)
    for (std::size_t i = 0; i < bytes.size(); ++i) together.add(made, static_cast<std::int32_t>(i));
  for (std::size_t use = 0; use < uses.size(); ++use) {
    together.add(uses[use].instances, uses[use].instances);
    if (use > 0) together.add(uses[use - 1].instances, uses[use].instances);
  }
  return time_slots_of(std::move(bytes), std::move(together));
}

TimeSlots bucket_time_slots(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes) {
  NeededTogether together(bytes);
  for (std::size_t b = 0; b < reduced.size(); ++b) {
    together.add(reduced[b], reduced[b]);
    if (b > 0) together.add(reduced[b - 1], reduced[b]);
  }
  return time_slots_of(std::move(bytes), std::move(together));
}

namespace {

// ------------------------------------------------------------------- arrived time slots
// Places what is held for updates in memory that instances reuse: offloaded gradients, from their arrival to
// their update, or state as of before `speculate`, until `settle`. Example: while layer 3 is updated, the
// gradients of layers 2 and 1 arrive; those of layer 0 reuse the memory of layer 3.

// Is the range of calls in which an instance needs memory.
struct Stay {
  std::int32_t instance = -1;
  std::ptrdiff_t arrives = 0, updated = 0;
};

// Returns these ranges in the order in which they begin.
std::vector<Stay> stays_in_turn(const Plan& plan, const std::vector<std::int64_t>& bytes) {
  Numbered<bool> touches;
  for (const PlannedFunction& function : plan.functions) touches.push_back(touches_arrived(function));
  std::vector<Stay> all;
  for (std::size_t at = 0; at < plan.calls.size(); ++at) {
    const Call& call = plan.calls[at];
    if (!touches[call.function] || bytes[static_cast<std::size_t>(call.instance)] == 0) continue;
    auto known =
        std::find_if(all.begin(), all.end(), [&](const Stay& one) { return one.instance == call.instance; });
    if (known == all.end()) known = all.insert(known, {call.instance, static_cast<std::ptrdiff_t>(at), 0});
    known->updated = static_cast<std::ptrdiff_t>(at);
  }
  return all;
}

}  // namespace

bool touches_arrived(const PlannedFunction& function) {
  return std::any_of(function.steps.begin(), function.steps.end(), [](const PlannedStep& step) {
    return std::any_of(step.operands.begin(), step.operands.end(), [](const PlannedOperand& operand) {
      return operand.value != none && operand.address.region == Region::arrived;
    });
  });
}

TimeSlots arrived_time_slots(const Plan& plan, const std::vector<std::int64_t>& bytes) {
  constexpr std::size_t ahead = 2;
  const std::vector<Stay> all = stays_in_turn(plan, bytes);
  std::vector<std::int64_t> held(bytes.size());
  for (const Stay& stay : all)
    held[static_cast<std::size_t>(stay.instance)] = bytes[static_cast<std::size_t>(stay.instance)];
  NeededTogether together(held);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t later = i + 1; later < all.size(); ++later)
      if (later - i <= ahead || all[later].arrives <= all[i].updated)
        together.add(all[i].instance, all[later].instance);
  Offsets offsets = assign_offsets(held, together.conflicts(held.size()));
  return {std::move(held), std::move(offsets)};
}

namespace {

// ------------------------------------------------------------------- unreduced time slots
// Places local gradients, until they are summed over the ranks, in memory that instances and scratch share.
// Example: backward of layer 2 writes where layer 4's gradients were, as soon as those are summed.

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

namespace {

// ------------------------------------------------------------------- update time slots
// Places the copies that updates need in memory that instances reuse. Example: while layer 3 is updated, the
// state of layer 2 arrives from a drive and that of layer 4 returns: three slots.

// Returns each instance that is updated, in the order of the calls.
std::vector<std::int32_t> updated_in_order(const Plan& plan) {
  std::vector<std::int32_t> order;
  Numbered<bool> known(plan.instances.size());
  for (const Call& call : plan.calls) {
    if (plan.functions[call.function].kind != FunctionKind::update || call.instance == 0 ||
        known[call.instance])
      continue;
    known[call.instance] = true;
    order.push_back(call.instance);
  }
  return order;
}

// Returns true if an instance's update computes in three pieces or more.
bool is_updated_in_pieces(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update = plan.functions[plan.find(FunctionKind::update, instance)];
  return std::count_if(update.pieces.begin(), update.pieces.end(),
                       [&](const Piece& piece) { return plan.queues[piece.queue].workers; }) >= 3;
}

bool comes_from_drives(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update = plan.functions[plan.find(FunctionKind::update, instance)];
  const auto is_there = [&](const PlannedOperand& operand) {
    return operand.value != none && plan.layout.ranges[operand.address.range].place.space == Space::disk;
  };
  return std::any_of(update.steps.begin(), update.steps.end(), [&](const PlannedStep& step) {
    return std::any_of(step.operands.begin(), step.operands.end(), is_there);
  });
}

// Returns how many bytes of other instances may be between two that have memory at the same time, beyond the
// next two: those of the largest instance if drives are used, otherwise 0.
std::int64_t window_of(const Plan& plan, std::span<const std::int32_t> order,
                       const Numbered<std::int64_t>& bytes) {
  const bool drives =
      std::any_of(order.begin(), order.end(), [&](std::int32_t i) { return comes_from_drives(plan, i); });
  std::int64_t window = 0;
  for (const std::int32_t i : order)
    if (drives) window = std::max(window, bytes[i]);
  return window;
}

}  // namespace

TimeSlots update_time_slots(const Plan& plan, Numbered<std::int64_t> bytes, bool far_ahead) {
  const std::vector<std::int32_t> order = updated_in_order(plan);
  std::vector<bool> pieces;
  for (const std::int32_t i : order) pieces.push_back(is_updated_in_pieces(plan, i));
  const bool far = far_ahead && std::none_of(pieces.begin(), pieces.end(), std::identity());
  const std::int64_t window = far ? window_of(plan, order, bytes) : 0;
  std::vector<std::size_t> need_memory;  // places in `order`
  for (std::size_t i = 0; i < order.size(); ++i)
    if (bytes[order[i]] > 0) need_memory.push_back(i);
  NeededTogether together(bytes);
  for (std::size_t p = 0; p < need_memory.size(); ++p) {
    const std::size_t i = need_memory[p];
    std::int64_t between = 0;
    for (std::size_t next = 1; next < need_memory.size(); ++next) {
      const std::size_t later = need_memory[(p + next) % need_memory.size()],
                        distance = (later + order.size() - i) % order.size();
      if ((later < i && window == 0) || (distance > 2 && between > window)) break;
      if (!pieces[i] || !pieces[later]) together.add(order[i], order[later]);
      between += bytes[order[later]];
    }
  }
  Offsets offsets = assign_offsets(bytes, together.conflicts(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace prun
