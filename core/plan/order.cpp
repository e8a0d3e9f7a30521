#include "plan/order.hpp"

#include <algorithm>

#include "plan/slots.hpp"

namespace prun {
namespace {

class Order {
 public:
  Order(const Program& program, const Work& work, Plan& plan)
      : program_(program), work_(work), plan_(plan), slots_(plan, work), passes_(plan.instances.size(), 0) {}

  void run() {
    load_until(0);
    all_instances(FunctionKind::zero);
    add(FunctionKind::begin, step_instance, -1);
    for_the_whole_step(FunctionKind::gather);
    for_the_whole_step(FunctionKind::clear);
    list_gathered();
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
    all_instances(FunctionKind::update);
    add(FunctionKind::report, step_instance, -1);
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  // ------------------------------------------------------------- calls

  // The segment's function of that kind, or -1.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const {
    const Id segment = plan_.instances[static_cast<std::size_t>(instance)].segment;
    for (std::size_t f = 0; f < plan_.functions.size(); ++f)
      if (plan_.functions[f].segment == segment && plan_.functions[f].kind == kind)
        return static_cast<std::int32_t>(f);
    return -1;
  }

  const PlannedFunction& planned(std::int32_t function) const {
    return plan_.functions[static_cast<std::size_t>(function)];
  }

  std::int32_t pieces(std::int32_t function) const {
    return static_cast<std::int32_t>(planned(function).pieces.size());
  }

  // One call for each piece of the function; none where the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch) {
    add_function(find(kind, instance), instance, microbatch);
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
      if (uses_inlet(instance)) call.inlet_slot = held_.inlet;
    }
    call.queue = planned(function).pieces[static_cast<std::size_t>(piece)].queue;
    call.position = plan_.queues[static_cast<std::size_t>(call.queue)].calls++;
    plan_.calls.push_back(std::move(call));
  }

  bool uses_inlet(std::int32_t instance) const {
    return plan_.instances[static_cast<std::size_t>(instance)].inlet ||
           plan_.instances[static_cast<std::size_t>(instance) - 1].inlet;
  }

  template <class Body>
  void each_instance(Body&& body) const {
    for (std::size_t i = 1; i < plan_.instances.size(); ++i)
      if (!plan_.instances[i].inlet) body(static_cast<std::int32_t>(i));
  }

  void all_instances(FunctionKind kind) {
    each_instance([&](std::int32_t i) { add(kind, i, -1); });
  }

  // What does not repeat has buffers of its own.
  void for_the_whole_step(FunctionKind kind) {
    each_instance([&](std::int32_t i) {
      if (!repeats(i)) add(kind, i, -1);
    });
  }

  bool repeats(std::int32_t instance) const {
    return program_.segment(plan_.instances[static_cast<std::size_t>(instance)].segment).repeat > 1;
  }

  void load_until(std::int32_t microbatch) {
    for (; loaded_ <= microbatch && loaded_ < plan_.microbatches; ++loaded_)
      add(FunctionKind::load, step_instance, loaded_);
  }

  // ------------------------------------------------------------- passes

  // Calls body(kind, instance) for the functions of a pass, in order.
  template <class Body>
  void each_function(const ScheduleCall& call, Body&& body) const {
    const Chunk& chunk = plan_.chunks[static_cast<std::size_t>(call.chunk)];
    if (call.pass == Pass::forward) {
      for (std::int32_t i = chunk.first; i < chunk.last; ++i) body(FunctionKind::forward, i);
      return;
    }
    const bool weights = call.pass == Pass::backward_weight;
    for (std::int32_t i = chunk.last; i-- > chunk.first;)
      body(weights ? FunctionKind::backward_weight : FunctionKind::backward, i);
  }

  void run_pass(const ScheduleCall& call) {
    const Chunk& chunk = plan_.chunks[static_cast<std::size_t>(call.chunk)];
    const bool forward = call.pass == Pass::forward, weights = call.pass == Pass::backward_weight;
    if (forward) add_function(chunk.receive, chunk.inlet, call.microbatch);
    if (!forward && !weights) add_function(chunk.receive_gradient, chunk.last - 1, call.microbatch);
    each_function(call, [&](FunctionKind kind, std::int32_t i) {
      const bool contributes = call.pass == Pass::backward || weights;
      if (contributes && repeats(i)) add(FunctionKind::clear, i, -1);
      gather_for(kind, i);
      add(kind, i, call.microbatch);
      // A program whose backward is split, in an order that does not tell the parts apart.
      if (call.pass == Pass::backward) add(FunctionKind::backward_weight, i, call.microbatch);
      if (contributes) contributed(i);
    });
    if (forward) add_function(chunk.send, chunk.last - 1, call.microbatch);
    if (!forward && !weights) add_function(chunk.send_gradient, chunk.inlet, call.microbatch);
  }

  // ------------------------------------------------------------- gradients

  // What is cleared for each microbatch is summed after each, everything else after the last.
  void contributed(std::int32_t instance) {
    const bool last = ++passes_[static_cast<std::size_t>(instance)] == plan_.microbatches;
    const bool each = repeats(instance) && find(FunctionKind::clear, instance) >= 0;
    if (each || (last && find(FunctionKind::tie, instance) < 0)) reduce(instance);
  }

  // Two ranks meet for it, each with its own last pass: at the end, where nobody holds the other up.
  void sum_tied() {
    all_instances(FunctionKind::tie);
    each_instance([&](std::int32_t i) {
      if (find(FunctionKind::tie, i) >= 0) reduce(i);
    });
    finish_reduce();
  }

  // What follows the exchange on the compute queue would hold the next backward up: it comes one instance
  // later.
  void reduce(std::int32_t instance) {
    finish_reduce();
    const std::int32_t function = find(FunctionKind::reduce, instance);
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

  bool uses_gathered(std::int32_t function) const {
    if (function < 0) return false;
    const std::vector<PlannedStep>& steps = planned(function).steps;
    return std::any_of(steps.begin(), steps.end(), [](const PlannedStep& step) {
      return std::any_of(step.operands.begin(), step.operands.end(), [](const PlannedOperand& operand) {
        return operand.value != none && operand.address.region == Region::gathered;
      });
    });
  }

  void list_gathered() {
    for (const ScheduleCall& call : work_.calls)
      each_function(call, [&](FunctionKind kind, std::int32_t i) {
        if (uses_gathered(find(kind, i))) gathered_.push_back(i);
      });
  }

  // One use ahead, where the next one's buffer is not the one in use now.
  void gather_for(FunctionKind kind, std::int32_t instance) {
    if (!uses_gathered(find(kind, instance))) return;
    gather(instance);
    if (++used_ < gathered_.size() && gathered_[used_] % 2 != instance % 2) gather(gathered_[used_]);
  }

  void gather(std::int32_t instance) {
    std::int32_t& holds = holds_[instance % 2];
    if (holds != instance) add(FunctionKind::gather, instance, -1);
    holds = instance;
  }

  struct Pending {
    std::int32_t function = -1, piece = 0, instance = 0;
  };

  const Program& program_;
  const Work& work_;
  Plan& plan_;
  Slots slots_;
  Slots::Held held_;  // by the pass at hand
  std::int32_t loaded_ = 0;
  std::vector<std::int64_t> passes_;    // by instance: that its gradients have contributions of
  Pending pending_;                     // the rest of a reduction
  std::vector<std::int32_t> gathered_;  // instances, as their gathered parameters are used
  std::size_t used_ = 0;
  std::int32_t holds_[2] = {-1, -1};  // which instance's parameters the two buffers have
};

}  // namespace

void order_calls(const Program& program, const Work& work, Plan& plan) { Order(program, work, plan).run(); }

}  // namespace prun
