#include "plan/order/order.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plan/order/overlap.hpp"
#include "plan/order/slots.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/order/update_calls.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ begin calls

// Adds the calls of function `begin`. Those after its collective are added when a pass touches the same
// values, so that earlier passes need not wait for it.
class BeginCalls {
 public:
  BeginCalls(const Plan& plan, CallList& calls) : plan_(plan), calls_(calls) {}

  void begin();
  // Adds what this call needs. Call it before each call of a pass.
  void finish_for(const PassCall& call);
  void finish();

 private:
  bool is_needed_by(const PassCall& call) const;

  const Plan& plan_;
  CallList& calls_;
  std::vector<InstancePiece> put_off_;
  std::set<Id> values_;  // what they touch
};

void BeginCalls::begin() {
  constexpr std::int32_t step_instance = 0;
  const std::int32_t function = plan_.find(FunctionKind::begin, step_instance);
  if (function < 0) return;
  const std::int32_t behind = exchanges_of(plan_, function).last;
  for (std::int32_t piece = 0; piece < behind; ++piece) calls_.add_piece({function, piece, step_instance});
  for (std::int32_t piece = behind; piece < piece_count(plan_, function); ++piece) {
    put_off_.push_back({function, piece, step_instance});
    each_value(plan_, function, piece, [&](Id value) { values_.insert(value); });
  }
}

void BeginCalls::finish_for(const PassCall& call) {
  if (!put_off_.empty() && is_needed_by(call)) finish();
}

void BeginCalls::finish() {
  for (const InstancePiece& piece : std::exchange(put_off_, {})) calls_.add_piece(piece);
}

bool BeginCalls::is_needed_by(const PassCall& call) const {
  bool needed = false;
  for (std::int32_t piece = 0; piece < piece_count(plan_, call.function); ++piece)
    each_value(plan_, call.function, piece, [&](Id value) { needed |= values_.contains(value); });
  return needed;
}

// ------------------------------------------------------------ carried slots

// Assigns slots of carried values to microbatches. A rank keeps the carried values of a microbatch once, from
// its first pass through any chunk that uses one of them to its last. If some arrive from another rank there
// is one slot more, so that the next can arrive while the oldest microbatch is still in use.
class CarriedSlots {
 public:
  // Sets plan.carried_slots.
  CarriedSlots(Plan& plan, const Work& work, std::span<const CarriedSpan> spans);

  // Returns the slot of a call's microbatch, 0 if it has none; done() frees it after its last call. Call both
  // for each call of the work, in order.
  std::int32_t of(const ScheduleCall& call);
  void done(const ScheduleCall& call);

 private:
  bool meets(const ScheduleCall& call) const { return meets_[call.chunk]; }
  std::int32_t alive_at_once(const Work& work) const;

  Numbered<bool> meets_;                       // whether a chunk meets a carried value, by chunk
  std::map<std::int32_t, std::int32_t> left_;  // passes that are still to come, by microbatch
  std::map<std::int32_t, std::int32_t> held_;
  std::deque<std::int32_t> free_;  // free slots, longest free first
};

CarriedSlots::CarriedSlots(Plan& plan, const Work& work, std::span<const CarriedSpan> spans) {
  bool arrives = false;
  for (const ChunkWork& chunk : work.chunks) {
    meets_.push_back(std::any_of(spans.begin(), spans.end(), [&](const CarriedSpan& span) {
      return span.meets(chunk.first, chunk.last);
    }));
    arrives |= std::any_of(spans.begin(), spans.end(),
                           [&](const CarriedSpan& span) { return span.arrives(work, chunk); });
  }
  for (const ScheduleCall& call : work.calls)
    if (meets(call)) ++left_[call.microbatch];
  plan.carried_slots = alive_at_once(work) + (arrives ? 1 : 0);
  for (std::int32_t slot = 0; slot < plan.carried_slots; ++slot) free_.push_back(slot);
}

std::int32_t CarriedSlots::alive_at_once(const Work& work) const {
  std::map<std::int32_t, std::int32_t> left = left_;
  std::int32_t now = 0, most = 0;
  for (const ScheduleCall& call : work.calls) {
    if (!meets(call)) continue;
    if (left[call.microbatch] == left_.at(call.microbatch)) most = std::max(most, ++now);
    if (--left[call.microbatch] == 0) --now;
  }
  return most;
}

std::int32_t CarriedSlots::of(const ScheduleCall& call) {
  if (!meets(call)) return 0;
  const auto [entry, fresh] = held_.try_emplace(call.microbatch, 0);
  if (fresh) {
    entry->second = free_.front();
    free_.pop_front();
  }
  return entry->second;
}

void CarriedSlots::done(const ScheduleCall& call) {
  if (!meets(call) || --left_.at(call.microbatch) > 0) return;
  const auto entry = held_.find(call.microbatch);
  free_.push_back(entry->second);
  held_.erase(entry);
}

// ------------------------------------------------------------ gather calls

// Adds calls that gather sharded parameters, one use ahead.
class GatherCalls {
 public:
  GatherCalls(const Plan& plan, const GatheredUses& uses, std::span<const Bundle> renewed,
              const TimeSlots& time_slots, CallList& calls)
      : uses_(uses), renewed_(renewed), time_slots_(time_slots), calls_(calls), touched_(plan) {}

  // Gathers what this call uses and, before it runs, what the next use needs.
  void gather_for(const PassCall& call);

 private:
  void renew();
  void gather(Bundle bundle);
  void finish(Bundle bundle);

  const GatheredUses& uses_;
  const std::span<const Bundle> renewed_;
  const TimeSlots& time_slots_;
  CallList& calls_;
  const TouchedGathered touched_;
  std::size_t used_ = 0;           // number of uses before the one at hand
  std::int64_t calls_of_use_ = 0;  // calls of the one at hand
  std::set<std::int32_t> holds_;   // instances whose parameters are gathered
  std::set<std::int32_t> coming_;  // instances whose gathers are not finished
};

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

// Refreshes secondary copies as a step begins, in the order of first use: they have dedicated memory.
void GatherCalls::renew() {
  for (const Bundle& bundle : renewed_) {
    for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::renew, i);
    calls_.add_exchanges(FunctionKind::renew, bundle);
    calls_.add_behind_exchanges(FunctionKind::renew, bundle);
  }
}

// Gathers what is not in memory since an earlier gather.
void GatherCalls::gather(Bundle bundle) {
  std::erase_if(bundle, [&](std::int32_t i) { return !holds_.insert(i).second; });
  for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::gather, i);
  calls_.add_exchanges(FunctionKind::gather, bundle);
  for (const std::int32_t i : bundle)
    std::erase_if(holds_, [&](std::int32_t other) { return other != i && time_slots_.overlap(other, i); });
  coming_.insert(bundle.begin(), bundle.end());
}

// Adds the ops after the collective, at the use of their results: earlier they would hold up other ops.
void GatherCalls::finish(Bundle bundle) {
  std::erase_if(bundle, [&](std::int32_t i) { return coming_.erase(i) == 0; });
  calls_.add_behind_exchanges(FunctionKind::gather, bundle);
}

// ------------------------------------------------------------ gradient calls

// Adds calls that sum gradients over the ranks as they are complete, and take their norm.
class GradientCalls {
 public:
  // `bundles`: instances whose gradients are summed together, in the order in which they are complete.
  GradientCalls(const Plan& plan, const Work& work, std::span<const Bundle> bundles, CallList& calls,
                UpdateCalls& updates);

  // Empties gradients that have dedicated memory; call it when the step begins.
  void clear();
  // Call these before and after each call of a pass.
  void before(const PassCall& call, Pass pass);
  // Fetches offloaded gradients that `call` adds to, while the call before it runs.
  void bring_back_for(const PassCall& call);
  void behind(const PassCall& call, std::int32_t microbatch);

  // Sums tied gradients over two stages after all passes, when neither stage keeps the other waiting.
  void sum_tied();
  // Completes tied gradients; call it after sum_tied().
  void complete_tied();
  // Takes norms in the order in which gradients were summed, so that the first need not wait for the last.
  void measure();

 private:
  void complete(std::int32_t instance);
  void finish_pending();
  void bring_back(std::int32_t instance);
  void put_away(std::int32_t instance);

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  UpdateCalls& updates_;
  Contributions contributions_;
  std::vector<std::int32_t> summed_;  // instances in the order in which they are summed
  std::size_t next_ = 0;              // number of the next bundle
  Bundle pending_;                    // bundle whose reduction is not finished
};

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
    if (plan_.find(FunctionKind::zero, i) != contributions_.clearing_of(i)) calls_.add(FunctionKind::zero, i);
}

void GradientCalls::before(const PassCall& call, Pass pass) {
  for (const std::int32_t i : contributions_.begun_by(call)) {
    const bool is_pending = std::find(pending_.begin(), pending_.end(), i) != pending_.end();
    if (pass == Pass::forward || is_pending) finish_pending();
    if (contributions_.has_sums(i) && contributions_.moves_of(i).any())
      bring_back(i);
    else
      calls_.add_function(contributions_.clearing_of(i), i, -1);
  }
}

void GradientCalls::bring_back_for(const PassCall& call) {
  for (const std::int32_t i : contributions_.returning_for(call)) bring_back(i);
}

void GradientCalls::bring_back(std::int32_t instance) {
  const SumMoves& moves = contributions_.moves_of(instance);
  for (std::int32_t piece = moves.back; piece < piece_count(plan_, moves.function); ++piece)
    calls_.add_piece({moves.function, piece, instance});
}

void GradientCalls::put_away(std::int32_t instance) {
  const SumMoves& moves = contributions_.moves_of(instance);
  for (std::int32_t piece = 0; piece < moves.back; ++piece)
    calls_.add_piece({moves.function, piece, instance});
}

void GradientCalls::behind(const PassCall& call, std::int32_t microbatch) {
  for (const std::int32_t i : contributions_.completed_by(call, microbatch)) complete(i);
  for (const std::int32_t i : contributions_.set_aside_by(call)) put_away(i);
}

void GradientCalls::sum_tied() {
  for (const std::int32_t i : held_instances(plan_)) calls_.add(FunctionKind::tie, i);
}

void GradientCalls::complete_tied() {
  for (const std::int32_t i : held_instances(plan_))
    if (plan_.find(FunctionKind::tie, i) >= 0) complete(i);
}

// Adds the calls of `reduce`, but for the ops after its collectives, which would hold up the compute queue.
// finish_pending() adds these when the next instance is complete, when these gradients begin again, or when
// others begin in a forward pass.
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

// ------------------------------------------------------------ saved calls

// Adds calls that offload saved activations during forward, and fetch them before their backward.
class SavedCalls {
 public:
  SavedCalls(const Work& work, const Plan& plan, Slots& slots, CallList& calls)
      : work_(work), plan_(plan), slots_(slots), calls_(calls) {}

  // Offloads what an instance's forward has saved, if anything. Call it after that forward.
  void put_away(std::int32_t instance, std::int32_t microbatch);
  // Fetches what the first of the calls left in a backward pass reads, and ahead of it what the next instance
  // reads, in this pass or the next; unless that needs the same buffer.
  void bring_back_for(std::size_t pass, std::span<const PassCall> left);

 private:
  using Saved = std::pair<std::int32_t, std::int32_t>;  // instance and microbatch

  void bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken);
  std::int64_t bring_back(std::int32_t instance, const ScheduleCall& call);

  const Work& work_;
  const Plan& plan_;
  Slots& slots_;
  CallList& calls_;
  std::set<Saved> away_;
  std::array<std::optional<Saved>, 2> returned_;  // what each of two buffers holds
};

void SavedCalls::put_away(std::int32_t instance, std::int32_t microbatch) {
  if (plan_.find(FunctionKind::put_away, instance) < 0) return;
  calls_.add(FunctionKind::put_away, instance, microbatch);
  away_.insert({instance, microbatch});
  returned_[static_cast<std::size_t>(plan_.turn_of(instance, calls_.held().slot))] = {};
}

void SavedCalls::bring_back_for(std::size_t pass, std::span<const PassCall> left) {
  const std::int32_t now = left.front().instance;
  const std::int64_t turn = bring_back(now, work_.calls[pass]);
  for (const PassCall& next : left)
    if (next.instance != now) return bring_back_ahead(next.instance, work_.calls[pass], turn);
  if (pass + 1 == work_.calls.size() || work_.calls[pass + 1].pass == Pass::forward) return;
  const std::vector<PassCall> behind = functions_of(plan_, work_.calls[pass + 1]);
  if (!behind.empty()) bring_back_ahead(behind.front().instance, work_.calls[pass + 1], turn);
}

void SavedCalls::bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken) {
  if (!away_.contains({instance, call.microbatch})) return;
  const Slots::Taken held = calls_.held();
  calls_.hold(slots_.of(call));
  if (plan_.turn_of(instance, calls_.held().slot) != taken) bring_back(instance, call);
  calls_.hold(held);
}

// Fetches an instance's saved values if they are offloaded. Returns the buffer that they have.
std::int64_t SavedCalls::bring_back(std::int32_t instance, const ScheduleCall& call) {
  const std::int64_t turn = plan_.turn_of(instance, calls_.held().slot);
  const Saved saved{instance, call.microbatch};
  std::optional<Saved>& there = returned_[static_cast<std::size_t>(turn)];
  if (away_.contains(saved) && there != saved) {
    calls_.add(FunctionKind::bring_back, instance, call.microbatch);
    there = saved;
  }
  return turn;
}

class CallOrder {
 public:
  CallOrder(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
            const TimeSlots& gathered, std::int32_t speculated, Plan& plan)
      : work_(work),
        plan_(plan),
        slots_(plan, work),
        carried_(plan, work, carried),
        calls_(plan),
        begin_(plan, calls_),
        saved_(work, plan, slots_, calls_),
        gathers_(plan, bundles.uses, bundles.renewed, gathered, calls_),
        updates_(plan, bundles.updated, work.period.at_once, speculated, calls_),
        gradients_(plan, work, bundles.reduced, calls_, updates_) {}

  void run() {
    load_until(0);
    begin_.begin();
    if (!updates_at_once()) gradients_.clear();
    for (std::size_t number = 0; number < work_.calls.size(); ++number) {
      const ScheduleCall& call = work_.calls[number];
      groups_.begin_pass(number);
      load_until(call.microbatch + 1);
      calls_.hold(slots_.of(call));
      calls_.hold_carried(carried_.of(call));
      if (updates_at_once() && number == first_with_gradients()) gradients_.clear();
      run_pass(number);
      slots_.done(call);
      carried_.done(call);
    }
    groups_.begin(CallGroup::summed);
    begin_.finish();
    gradients_.sum_tied();
    groups_.begin(CallGroup::measured);
    gradients_.complete_tied();
    gradients_.measure();
    if (updates_at_once()) updates_.update_the_rest();
    add_behind(FunctionKind::finish, CallGroup::updated);
    for (const std::int32_t i : held_instances(plan_)) calls_.add(FunctionKind::diagnose, i);
    if (!updates_at_once()) updates_.update_the_rest();
    for (const std::int32_t i : held_instances(plan_)) calls_.add(FunctionKind::periodic, i);
    add_behind(FunctionKind::report, CallGroup::reported);
    if (plan_.overlaps) overlap_steps(work_, groups_, plan_);
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  bool updates_at_once() const { return work_.period.at_once; }

  // Returns the first pass of a step that may have gradients. There is memory for those of one step, so where
  // passes of several steps are in an iteration, a forward has none.
  std::size_t first_with_gradients() const { return work_.period.steps() > 1 ? 1 : 0; }

  // Adds a function of the step; its pieces after the collectives, which wait for all ranks, begin `group`.
  void add_behind(FunctionKind kind, CallGroup::Kind group) {
    const std::int32_t function = plan_.find(kind, step_instance);
    const std::int32_t pieces = function >= 0 ? piece_count(plan_, function) : 0,
                       behind = function >= 0 ? behind_exchanges(function) : 0;
    for (std::int32_t piece = 0; piece < behind; ++piece) calls_.add_piece({function, piece, step_instance});
    groups_.begin(group);
    for (std::int32_t piece = behind; piece < pieces; ++piece)
      calls_.add_piece({function, piece, step_instance});
  }

  // Returns the first piece after a function's collectives. With updates at once, ranks may be at different
  // steps by then, so all collectives of the function are at one place in their order.
  std::int32_t behind_exchanges(std::int32_t function) const {
    if (!updates_at_once()) return exchanges_of(plan_, function).last;
    std::int32_t behind = piece_count(plan_, function);
    while (behind > 0 && !plan_.queues[plan_.functions[function].pieces[behind - 1].queue].communicates())
      --behind;
    return behind;
  }

  void load_until(std::int32_t microbatch) {
    for (; loaded_ <= microbatch && loaded_ < plan_.microbatches; ++loaded_)
      calls_.add(FunctionKind::load, step_instance, loaded_);
  }

  void run_pass(std::size_t number) {
    const ScheduleCall& call = work_.calls[number];
    const Chunk& chunk = plan_.chunks[call.chunk];
    const bool forward = call.pass == Pass::forward, weights = call.pass == Pass::backward_weight;
    if (forward) calls_.add_function(chunk.receive, chunk.stub, call.microbatch);
    if (!forward && !weights) calls_.add_function(chunk.receive_gradient, chunk.last - 1, call.microbatch);
    const std::vector<PassCall> functions = functions_of(plan_, call);
    for (std::size_t at = 0; at < functions.size(); ++at) {
      const PassCall& next = functions[at];
      // Fetches first what this call reads: both use the same link.
      if (!forward) saved_.bring_back_for(number, std::span(functions).subspan(at));
      gathers_.gather_for(next);
      begin_.finish_for(next);
      gradients_.before(next, call.pass);
      if (at + 1 < functions.size()) gradients_.bring_back_for(functions[at + 1]);
      calls_.add_function(next.function, next.instance, call.microbatch);
      if (forward) saved_.put_away(next.instance, call.microbatch);
      gradients_.behind(next, call.microbatch);
    }
    if (forward) calls_.add_function(chunk.send, chunk.last - 1, call.microbatch);
    if (!forward && !weights) calls_.add_function(chunk.send_gradient, chunk.stub, call.microbatch);
  }

  const Work& work_;
  Plan& plan_;
  Slots slots_;
  CarriedSlots carried_;
  CallList calls_;
  BeginCalls begin_;
  SavedCalls saved_;
  GatherCalls gathers_;
  UpdateCalls updates_;
  GradientCalls gradients_;
  CallGroups groups_{plan_};
  std::int32_t loaded_ = 0;
};

}  // namespace

void order_calls(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
                 const TimeSlots& gathered, std::int32_t speculated, Plan& plan) {
  CallOrder(work, carried, bundles, gathered, speculated, plan).run();
}

}  // namespace prun
