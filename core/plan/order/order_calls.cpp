#include "plan/order/order_calls.hpp"

#include <span>

#include "plan/instances.hpp"
#include "plan/order/begin_calls.hpp"
#include "plan/order/call_list.hpp"
#include "plan/order/carried_slots.hpp"
#include "plan/order/gather_calls.hpp"
#include "plan/order/gradient_calls.hpp"
#include "plan/order/overlap.hpp"
#include "plan/order/pass_calls.hpp"
#include "plan/order/saved_calls.hpp"
#include "plan/order/slots.hpp"
#include "plan/order/update_calls.hpp"

namespace prun {
namespace {

class CallOrder {
 public:
  CallOrder(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
            const TimeSlots& gathered, Plan& plan)
      : work_(work),
        plan_(plan),
        slots_(plan, work),
        carried_(plan, work, carried),
        calls_(plan),
        begin_(plan, calls_),
        saved_(work, plan, slots_, calls_),
        gathers_(plan, bundles.uses, bundles.renewed, gathered, calls_),
        updates_(plan, bundles.updated, work.period.at_once, calls_),
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
    add_behind(FunctionKind::report, CallGroup::reported);
    if (plan_.overlaps) overlap_steps(work_, groups_, plan_);
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  bool updates_at_once() const { return work_.period.at_once; }
  // Returns the first pass of a step that has gradients. Gradients of one step are there at a time: where
  // passes of several steps are at work, a forward has none.
  std::size_t first_with_gradients() const { return work_.period.steps() > 1 ? 1 : 0; }

  // Adds a function whose part behind its exchanges, which wait for all ranks, begins another group.
  void add_behind(FunctionKind kind, CallGroup::Kind group) {
    const std::int32_t function = plan_.find(kind, step_instance);
    const std::int32_t pieces = function >= 0 ? piece_count(plan_, function) : 0,
                       behind = function >= 0 ? behind_exchanges(function) : 0;
    for (std::int32_t piece = 0; piece < behind; ++piece) calls_.add_piece({function, piece, step_instance});
    groups_.begin(group);
    for (std::int32_t piece = behind; piece < pieces; ++piece)
      calls_.add_piece({function, piece, step_instance});
  }

  // Returns the piece behind a function's exchanges: ranks that are at different steps by then exchange all
  // of it at one place in their order.
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
      // Brings back first what this call reads, where both take the same way.
      if (!forward) saved_.bring_back_for(number, std::span(functions).subspan(at));
      gathers_.gather_for(next);
      begin_.finish_for(next);
      gradients_.before(next, call.pass);
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
                 const TimeSlots& gathered, Plan& plan) {
  CallOrder(work, carried, bundles, gathered, plan).run();
}

}  // namespace prun
