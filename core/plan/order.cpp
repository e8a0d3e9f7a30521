#include "plan/order.hpp"

#include <set>

#include "plan/slots.hpp"

namespace prun {
namespace {

class Order {
 public:
  Order(const Work& work, const GatheredUses& uses, const Turns& gathered, Plan& plan)
      : work_(work),
        plan_(plan),
        slots_(plan, work),
        gradients_(plan, work),
        gathered_(gathered),
        uses_parameters_(plan, {Region::gathered}),
        uses_(uses) {}

  void run() {
    load_until(0);
    add(FunctionKind::begin, step_instance, -1);
    all_instances(FunctionKind::zero);
    for (const ScheduleCall& call : work_.calls) {
      load_until(call.microbatch + 1);
      held_ = slots_.of(call);
      run_pass(call);
      finish_reduce();
      slots_.done(call);
    }
    sum_tied();
    all_instances(FunctionKind::norm);
    add(FunctionKind::finish, step_instance, -1);
    all_instances(FunctionKind::diagnose);
    all_instances(FunctionKind::update);
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
    if (function < 0) return;
    for (std::int32_t piece = 0; piece < pieces(function); ++piece)
      add_piece(function, piece, instance, microbatch);
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

  // ------------------------------------------------------------- passes

  void run_pass(const ScheduleCall& call) {
    const Chunk& chunk = plan_.chunks[static_cast<std::size_t>(call.chunk)];
    const bool forward = call.pass == Pass::forward, weights = call.pass == Pass::backward_weight;
    if (forward) add_function(chunk.receive, chunk.stub, call.microbatch);
    if (!forward && !weights) add_function(chunk.receive_gradient, chunk.last - 1, call.microbatch);
    for (const PassCall& next : functions_of(plan_, call)) {
      gather_for(next);
      for (const std::int32_t i : gradients_.begun_by(next)) add(FunctionKind::clear, i, -1);
      add_function(next.function, next.instance, call.microbatch);
      for (const std::int32_t i : gradients_.completed_by(next, call.microbatch)) reduce(i);
    }
    if (forward) add_function(chunk.send, chunk.last - 1, call.microbatch);
    if (!forward && !weights) add_function(chunk.send_gradient, chunk.stub, call.microbatch);
  }

  // ------------------------------------------------------------- gradients

  // Two ranks meet for it, each with its own last pass: at the end, where nobody holds the other up.
  void sum_tied() {
    all_instances(FunctionKind::tie);
    each_instance([&](std::int32_t i) {
      if (plan_.find(FunctionKind::tie, i) >= 0) reduce(i);
    });
    finish_reduce();
  }

  // What follows the exchange on the compute queue would hold the next backward up: it comes one instance
  // later.
  void reduce(std::int32_t instance) {
    finish_reduce();
    const std::int32_t function = plan_.find(FunctionKind::reduce, instance);
    if (function < 0) return;
    std::int32_t piece = 0, exchanges = 0;
    for (; piece < pieces(function) && (exchanges == 0 || !on_compute(function, piece)); ++piece) {
      exchanges += !on_compute(function, piece);
      add_piece(function, piece, instance, -1);
    }
    if (piece < pieces(function)) pending_ = {function, piece, instance};
  }

  void finish_reduce() {
    if (pending_.function < 0) return;
    for (std::int32_t piece = pending_.piece; piece < pieces(pending_.function); ++piece)
      add_piece(pending_.function, piece, pending_.instance, -1);
    pending_ = {};
  }

  bool on_compute(std::int32_t function, std::int32_t piece) const {
    return planned(function).pieces[static_cast<std::size_t>(piece)].queue == compute_queue;
  }

  // ------------------------------------------------------------- parameters kept in parts

  // What this call uses, and ahead of it what the next one does.
  void gather_for(const PassCall& call) {
    const std::vector<std::int32_t> needed = uses_parameters_.by(call);
    if (needed.empty()) return;
    for (const std::int32_t i : needed) gather(i);
    if (++used_ < uses_.size())
      for (const std::int32_t i : uses_[used_]) gather(i);
  }

  void gather(std::int32_t instance) {
    if (!holds_.insert(instance).second) return;
    add(FunctionKind::gather, instance, -1);
    std::erase_if(
        holds_, [&](std::int32_t other) { return other != instance && gathered_.overlap(other, instance); });
  }

  struct Pending {
    std::int32_t function = -1, piece = 0, instance = 0;
  };

  const Work& work_;
  Plan& plan_;
  Slots slots_;
  Slots::Held held_;  // by the pass at hand
  std::int32_t loaded_ = 0;
  Contributions gradients_;
  Pending pending_;  // the rest of a reduction
  const Turns& gathered_;
  const Touched uses_parameters_;
  const GatheredUses& uses_;
  std::size_t used_ = 0;
  std::set<std::int32_t> holds_;  // instances whose parameters are gathered
};

}  // namespace

void order_calls(const Work& work, const GatheredUses& uses, const Turns& gathered, Plan& plan) {
  Order(work, uses, gathered, plan).run();
}

}  // namespace prun
