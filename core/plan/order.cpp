#include "plan/order.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "plan/slots.hpp"

namespace prun {
namespace {

class Order {
 public:
  Order(const Work& work, const Bundles& bundles, const Turns& gathered, Plan& plan)
      : work_(work),
        bundles_(bundles),
        plan_(plan),
        slots_(plan, work),
        gradients_(plan, work),
        gathered_(gathered),
        uses_parameters_(plan, {Region::gathered}),
        updates_are_free_(need_nothing_of_the_norm()) {
    each_instance([&](std::int32_t i) { summed_.push_back(i); });
    for (const Bundle& bundle : bundles.updated)
      updated_.insert(updated_.end(), bundle.begin(), bundle.end());
    left_to_update_.insert(updated_.begin(), updated_.end());
  }

  void run() {
    load_until(0);
    begin();
    each_instance([&](std::int32_t i) {
      if (plan_.find(FunctionKind::zero, i) != clearing_in_turn(plan_, i)) add(FunctionKind::zero, i, -1);
    });
    for (std::size_t c = 0; c < work_.calls.size(); ++c) {
      const ScheduleCall& call = work_.calls[c];
      load_until(call.microbatch + 1);
      held_ = slots_.of(call);
      run_pass(c);
      slots_.done(call);
    }
    finish_begin();
    sum_tied();
    measure();
    add(FunctionKind::finish, step_instance, -1);
    all_instances(FunctionKind::diagnose);
    if (updates_are_free_)
      update_what_is_left();
    else
      update_all();
    add(FunctionKind::report, step_instance, -1);
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  // ------------------------------------------------------------- calls

  const PlannedFunction& planned(std::int32_t function) const {
    return plan_.functions[static_cast<std::size_t>(function)];
  }

  std::int32_t pieces(std::int32_t function) const {
    return static_cast<std::int32_t>(planned(function).pieces.size());
  }

  // One call for each piece of the function; none where the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch) {
    add_function(plan_.find(kind, instance), instance, microbatch);
  }

  void add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch) {
    if (function >= 0) add_pieces(function, 0, pieces(function), instance, microbatch);
  }

  void add_pieces(std::int32_t function, std::int32_t first, std::int32_t last, std::int32_t instance,
                  std::int32_t microbatch = -1) {
    for (std::int32_t piece = first; piece < last; ++piece) add_piece(function, piece, instance, microbatch);
  }

  void add_piece(std::int32_t function, std::int32_t piece, std::int32_t instance, std::int32_t microbatch) {
    Call call;
    call.function = function;
    call.piece = piece;
    call.instance = instance;
    call.microbatch = microbatch;
    if (microbatch >= 0 && instance != step_instance) {
      call.slot = held_.slot;
      if (uses_stub(instance)) call.stub_slot = held_.stub;
    }
    call.queue = planned(function).pieces[static_cast<std::size_t>(piece)].queue;
    call.position = plan_.queues[static_cast<std::size_t>(call.queue)].calls++;
    plan_.calls.push_back(std::move(call));
  }

  bool uses_stub(std::int32_t instance) const {
    return plan_.instances[static_cast<std::size_t>(instance)].receive_stub ||
           plan_.instances[static_cast<std::size_t>(instance) - 1].receive_stub;
  }

  template <class Body>
  void each_instance(Body&& body) const {
    for (std::size_t i = 1; i < plan_.instances.size(); ++i)
      if (!plan_.instances[i].receive_stub) body(static_cast<std::int32_t>(i));
  }

  void all_instances(FunctionKind kind) {
    each_instance([&](std::int32_t i) { add(kind, i, -1); });
  }

  void load_until(std::int32_t microbatch) {
    for (; loaded_ <= microbatch && loaded_ < plan_.microbatches; ++loaded_)
      add(FunctionKind::load, step_instance, loaded_);
  }

  // ------------------------------------------------------------- the beginning

  // What comes behind its exchange is put off until a pass touches the same values: none waits for it before.
  void begin() {
    const std::int32_t function = plan_.find(FunctionKind::begin, step_instance);
    if (function < 0) return;
    const std::int32_t behind = exchanges_of(plan_, function).last;
    add_pieces(function, 0, behind, step_instance);
    for (std::int32_t piece = behind; piece < pieces(function); ++piece) {
      put_off_.push_back({function, piece, step_instance});
      for_values(put_off_.back(), [&](Id value) { put_off_values_.insert(value); });
    }
  }

  void finish_begin() {
    for (const InstancePiece& of : std::exchange(put_off_, {}))
      add_piece(of.function, of.piece, of.instance, -1);
  }

  bool needs_begin(const PassCall& call) const {
    bool needs = false;
    for (std::int32_t piece = 0; !put_off_.empty() && piece < pieces(call.function); ++piece)
      for_values({call.function, piece, call.instance},
                 [&](Id value) { needs |= put_off_values_.count(value) != 0; });
    return needs;
  }

  template <class Body>
  void for_values(const InstancePiece& of, Body&& body) const {
    Call call;
    call.function = of.function;
    call.piece = of.piece;
    for (const PlannedStep& step : plan_.steps(call))
      for (const PlannedOperand& operand : step.operands)
        if (operand.value != none) body(operand.value);
  }

  // ------------------------------------------------------------- passes

  void run_pass(std::size_t number) {
    const ScheduleCall& call = work_.calls[number];
    const Chunk& chunk = plan_.chunks[static_cast<std::size_t>(call.chunk)];
    const bool forward = call.pass == Pass::forward, weights = call.pass == Pass::backward_weight;
    if (forward) add_function(chunk.receive, chunk.stub, call.microbatch);
    if (!forward && !weights) add_function(chunk.receive_gradient, chunk.last - 1, call.microbatch);
    const std::vector<PassCall> functions = functions_of(plan_, call);
    for (std::size_t at = 0; at < functions.size(); ++at) {
      const PassCall& next = functions[at];
      // First what this call reads, where both take the same way.
      if (!forward) bring_back_for(number, std::span(functions).subspan(at));
      gather_for(next);
      if (needs_begin(next)) finish_begin();
      for (const std::int32_t i : gradients_.begun_by(next)) {
        if (forward || std::find(pending_.begin(), pending_.end(), i) != pending_.end()) finish_reduce();
        add_function(clearing_in_turn(plan_, i), i, -1);
      }
      add_function(next.function, next.instance, call.microbatch);
      if (forward) put_away(next.instance, call.microbatch);
      for (const std::int32_t i : gradients_.completed_by(next, call.microbatch)) complete(i);
    }
    if (forward) add_function(chunk.send, chunk.last - 1, call.microbatch);
    if (!forward && !weights) add_function(chunk.send_gradient, chunk.stub, call.microbatch);
  }

  // ------------------------------------------------------------- what is saved elsewhere

  using Saved = std::pair<std::int32_t, std::int32_t>;  // of an instance, for a microbatch

  void put_away(std::int32_t instance, std::int32_t microbatch) {
    if (plan_.find(FunctionKind::put_away, instance) < 0) return;
    add(FunctionKind::put_away, instance, microbatch);
    away_.insert({instance, microbatch});
    returned_[static_cast<std::size_t>(plan_.turn_of(instance, held_.slot))] = {};
  }

  // What the first of the pass's calls reads and, unless that has the same memory, what the next instance's
  // does, which may be another pass's.
  void bring_back_for(std::size_t pass, std::span<const PassCall> left) {
    const std::int32_t now = left.front().instance;
    const std::int64_t turn = bring_back(now, work_.calls[pass]);
    for (const PassCall& next : left)
      if (next.instance != now) return bring_back_ahead(next.instance, work_.calls[pass], turn);
    if (pass + 1 == work_.calls.size() || work_.calls[pass + 1].pass == Pass::forward) return;
    const std::vector<PassCall> behind = functions_of(plan_, work_.calls[pass + 1]);
    if (!behind.empty()) bring_back_ahead(behind.front().instance, work_.calls[pass + 1], turn);
  }

  void bring_back_ahead(std::int32_t instance, const ScheduleCall& call, std::int64_t taken) {
    if (away_.count({instance, call.microbatch}) == 0) return;
    const Slots::Held held = std::exchange(held_, slots_.of(call));
    if (plan_.turn_of(instance, held_.slot) != taken) bring_back(instance, call);
    held_ = held;
  }

  // Which of the two buffers has it.
  std::int64_t bring_back(std::int32_t instance, const ScheduleCall& call) {
    const std::int64_t turn = plan_.turn_of(instance, held_.slot);
    const Saved saved{instance, call.microbatch};
    std::optional<Saved>& there = returned_[static_cast<std::size_t>(turn)];
    if (away_.count(saved) != 0 && there != saved) {
      add(FunctionKind::bring_back, instance, call.microbatch);
      there = saved;
    }
    return turn;
  }

  // ------------------------------------------------------------- gradients

  // Two ranks meet for it, each with its own last pass: at the end, where nobody holds the other up.
  void sum_tied() {
    all_instances(FunctionKind::tie);
    each_instance([&](std::int32_t i) {
      if (plan_.find(FunctionKind::tie, i) >= 0) complete(i);
    });
  }

  // What follows the exchange on the compute queue would hold up what comes next: it is put off until the
  // next instance is complete, or these begin anew, or another one does in the next forward pass.
  void complete(std::int32_t instance) {
    std::erase(summed_, instance);
    summed_.push_back(instance);
    const std::int32_t function = plan_.find(FunctionKind::reduce, instance);
    if (function < 0) {
      if (updates_are_free_) update_when_complete({instance});
      return;
    }
    finish_reduce();
    add_pieces(function, 0, exchanges_of(plan_, function).first, instance);
    const Bundle& bundle = bundles_.reduced[reduced_];
    if (instance != bundle.back()) return;
    add_exchanges(FunctionKind::reduce, bundle);
    pending_ = bundle;
    ++reduced_;
  }

  void finish_reduce() {
    const Bundle bundle = std::exchange(pending_, {});
    add_rest(FunctionKind::reduce, bundle);
    if (updates_are_free_) update_when_complete(bundle);
  }

  // Those that were summed first come first: they do not wait for the last.
  void measure() {
    for (const std::int32_t i : summed_) {
      if (!pending_.empty() && i == pending_.front()) finish_reduce();
      add(FunctionKind::norm, i, -1);
    }
  }

  // ------------------------------------------------------------- updates

  // Then an instance's comes as soon as its gradients are complete: where they touch nothing that `finish`
  // does, nobody meets for them, and gradients leave when they are complete or updates are another device's.
  bool need_nothing_of_the_norm() const {
    std::set<Id> of_finish;
    const auto add_values = [&](std::set<Id>& values, FunctionKind kind, std::int32_t instance) {
      const std::int32_t function = plan_.find(kind, instance);
      for (std::int32_t piece = 0; function >= 0 && piece < pieces(function); ++piece)
        for_values({function, piece, instance}, [&](Id value) { values.insert(value); });
    };
    add_values(of_finish, FunctionKind::finish, step_instance);
    std::set<Id> of_updates;
    add_values(of_updates, FunctionKind::update, step_instance);
    bool free = !of_updates.empty();
    each_instance([&](std::int32_t i) {
      const std::int32_t function = plan_.find(FunctionKind::update, i);
      if (function < 0) return;
      add_values(of_updates, FunctionKind::update, i);
      const Exchanges exchanges = exchanges_of(plan_, function);
      free &= exchanges.first == exchanges.last &&
              (plan_.find(FunctionKind::reduce, i) >= 0 || is_updated_elsewhere(i));
    });
    return free && std::none_of(of_updates.begin(), of_updates.end(),
                                [&](Id value) { return of_finish.count(value) != 0; });
  }

  void update_when_complete(const Bundle& bundle) {
    for (const std::int32_t i : bundle)
      if (!is_put_off(i) && left_to_update_.erase(i) > 0) {
        begin_updates();
        add(FunctionKind::update, i, -1);
      }
  }

  // Updates on another device go on under the next step's forward pass, which takes a quarter of the time
  // that both passes do: where one in four is left for then, the others keep up with backward, and what
  // forward needs first does not wait for what it needs last.
  bool is_put_off(std::int32_t instance) const {
    constexpr std::ptrdiff_t one_in = 4;
    const std::ptrdiff_t place = std::find(updated_.begin(), updated_.end(), instance) - updated_.begin();
    return place > 0 && place % one_in == 0 && is_updated_elsewhere(instance);
  }

  bool is_updated_elsewhere(std::int32_t instance) const {
    const std::int32_t function = plan_.find(FunctionKind::update, instance);
    if (function < 0) return false;
    const std::vector<Piece>& all = planned(function).pieces;
    return std::any_of(all.begin(), all.end(), [&](const Piece& piece) {
      const QueueInfo& queue = plan_.queues[static_cast<std::size_t>(piece.queue)];
      return queue.workers && queue.device != 0;
    });
  }

  void update_what_is_left() {
    begin_updates();
    for (const std::int32_t i : left_to_update_) add(FunctionKind::update, i, -1);
  }

  void update_all() {
    begin_updates();
    for (const Bundle& bundle : bundles_.updated) update(bundle);
  }

  // What all of them read comes to their device.
  void begin_updates() {
    if (!std::exchange(updates_begun_, true)) add(FunctionKind::update, step_instance, -1);
  }

  void update(const Bundle& bundle) {
    for (const std::int32_t i : bundle) {
      const std::int32_t function = plan_.find(FunctionKind::update, i);
      add_pieces(function, 0, exchanges_of(plan_, function).first, i);
    }
    add_exchanges(FunctionKind::update, bundle);
    add_rest(FunctionKind::update, bundle);
  }

  // ------------------------------------------------------------- bundles

  // Each queue's at once, in an order that is right for every instance.
  void add_exchanges(FunctionKind kind, const Bundle& bundle) {
    std::vector<std::vector<InstancePiece>> left;  // by instance, the next one last
    for (const std::int32_t i : bundle) {
      const std::int32_t function = plan_.find(kind, i);
      const Exchanges exchanges = exchanges_of(plan_, function);
      left.emplace_back();
      for (std::int32_t piece = exchanges.last; piece-- > exchanges.first;)
        left.back().push_back({function, piece, i});
    }
    for (;;) {
      std::erase_if(left, [](const std::vector<InstancePiece>& pieces) { return pieces.empty(); });
      if (left.empty()) return;
      const std::int32_t queue = queue_of(left.front().back());
      std::vector<InstancePiece> at_once;
      for (std::vector<InstancePiece>& pieces : left)
        if (queue_of(pieces.back()) == queue) {
          at_once.push_back(pieces.back());
          pieces.pop_back();
        }
      const InstancePiece& first = at_once.front();
      if (at_once.size() == 1)
        add_piece(first.function, first.piece, first.instance, -1);
      else
        add_piece(joint_function(plan_, at_once), 0, first.instance, -1);
    }
  }

  void add_rest(FunctionKind kind, const Bundle& bundle) {
    for (const std::int32_t i : bundle) {
      const std::int32_t function = plan_.find(kind, i);
      add_pieces(function, exchanges_of(plan_, function).last, pieces(function), i);
    }
  }

  std::int32_t queue_of(const InstancePiece& of) const {
    return planned(of.function).pieces[static_cast<std::size_t>(of.piece)].queue;
  }

  // ------------------------------------------------------------- parameters kept in parts

  // What this call uses, and ahead of it what the next use does.
  void gather_for(const PassCall& call) {
    if (uses_parameters_.by(call).empty()) return;
    if (calls_ == 0) {
      gather(bundles_.uses[used_].instances);
      if (used_ + 1 < bundles_.uses.size()) gather(bundles_.uses[used_ + 1].instances);
    }
    if (++calls_ < bundles_.uses[used_].calls) return;
    ++used_;
    calls_ = 0;
  }

  void gather(Bundle bundle) {
    std::erase_if(bundle, [&](std::int32_t i) { return !holds_.insert(i).second; });
    for (const std::int32_t i : bundle) {
      const std::int32_t function = plan_.find(FunctionKind::gather, i);
      add_pieces(function, 0, exchanges_of(plan_, function).first, i);
    }
    add_exchanges(FunctionKind::gather, bundle);
    for (const std::int32_t i : bundle)
      std::erase_if(holds_, [&](std::int32_t other) { return other != i && gathered_.overlap(other, i); });
  }

  const Work& work_;
  const Bundles& bundles_;
  Plan& plan_;
  Slots slots_;
  Slots::Held held_;  // by the pass at hand
  std::int32_t loaded_ = 0;
  Contributions gradients_;
  std::vector<std::int32_t> summed_;    // all instances; later ones are further behind
  std::vector<InstancePiece> put_off_;  // of the function `begin`
  std::set<Id> put_off_values_;
  std::size_t reduced_ = 0;  // bundles
  Bundle pending_;           // the rest of its reduction
  const Turns& gathered_;
  const Touched uses_parameters_;
  std::size_t used_ = 0;          // uses before the one at hand
  std::int64_t calls_ = 0;        // of the use at hand
  std::set<std::int32_t> holds_;  // instances whose parameters are gathered
  std::set<Saved> away_;
  std::array<std::optional<Saved>, 2> returned_;  // by buffer
  Bundle updated_;                                // as forward passes them
  std::set<std::int32_t> left_to_update_;
  const bool updates_are_free_;
  bool updates_begun_ = false;
};

}  // namespace

void order_calls(const Work& work, const Bundles& bundles, const Turns& gathered, Plan& plan) {
  Order(work, bundles, gathered, plan).run();
}

}  // namespace prun
