#include "plan/order.hpp"

namespace prun {
namespace {

class Order {
 public:
  explicit Order(Plan& plan) : plan_(plan) {}

  void run() {
    add(FunctionKind::load, step_instance, 0);
    all_instances(FunctionKind::zero);
    add(FunctionKind::begin, step_instance, -1);
    for (std::int32_t i = 1; i <= last_instance(); ++i)
      if (!repeats(i)) add(FunctionKind::gather, i, -1);
    const auto count = static_cast<std::int32_t>(plan_.microbatches);
    for (std::int32_t microbatch = 0; microbatch < count; ++microbatch) {
      if (microbatch + 1 < count) add(FunctionKind::load, step_instance, microbatch + 1);
      run_microbatch(microbatch, microbatch + 1 == count);
    }
    all_instances(FunctionKind::norm);
    add(FunctionKind::finish, step_instance, -1);
    all_instances(FunctionKind::update);
    add(FunctionKind::report, step_instance, -1);
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  std::int32_t last_instance() const { return static_cast<std::int32_t>(plan_.instances.size()) - 1; }

  // The segment's function of that kind, or -1.
  std::int32_t find(FunctionKind kind, std::int32_t instance) const {
    const Id segment = plan_.instances[static_cast<std::size_t>(instance)].segment;
    for (std::size_t f = 0; f < plan_.functions.size(); ++f)
      if (plan_.functions[f].segment == segment && plan_.functions[f].kind == kind)
        return static_cast<std::int32_t>(f);
    return -1;
  }

  std::int32_t pieces(std::int32_t function) const {
    return static_cast<std::int32_t>(plan_.functions[static_cast<std::size_t>(function)].pieces.size());
  }

  // One call for each piece of the function; none where the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch) {
    const std::int32_t function = find(kind, instance);
    if (function < 0) return;
    for (std::int32_t piece = 0; piece < pieces(function); ++piece)
      add_piece(function, piece, instance, microbatch);
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
    return plan_.functions[static_cast<std::size_t>(function)]
               .pieces[static_cast<std::size_t>(piece)]
               .queue == compute_queue;
  }

  void add_piece(std::int32_t function, std::int32_t piece, std::int32_t instance, std::int32_t microbatch) {
    Call call;
    call.function = function;
    call.piece = piece;
    call.instance = instance;
    call.microbatch = microbatch;
    call.queue =
        plan_.functions[static_cast<std::size_t>(function)].pieces[static_cast<std::size_t>(piece)].queue;
    call.position = plan_.queues[static_cast<std::size_t>(call.queue)].calls++;
    plan_.calls.push_back(std::move(call));
  }

  void all_instances(FunctionKind kind) {
    for (std::int32_t i = 1; i <= last_instance(); ++i) add(kind, i, -1);
  }

  void run_microbatch(std::int32_t microbatch, bool last) {
    for (std::int32_t i = 1; i <= last_instance(); ++i)
      if (!repeats(i)) add(FunctionKind::clear, i, -1);
    gather(1);
    for (std::int32_t i = 1; i <= last_instance(); ++i) {
      gather(i + 1);
      add(FunctionKind::forward, i, microbatch);
    }
    gather(last_instance());
    for (std::int32_t i = last_instance(); i >= 1; --i) {
      gather(i - 1);
      if (repeats(i)) add(FunctionKind::clear, i, -1);
      add(FunctionKind::backward, i, microbatch);
      add(FunctionKind::backward_weight, i, microbatch);
      // What is cleared for each microbatch is summed after each.
      if (last || find(FunctionKind::clear, i) >= 0) reduce(i);
    }
    finish_reduce();
  }

  // One instance ahead of its use. What does not repeat was gathered for the whole step.
  void gather(std::int32_t instance) {
    if (instance >= 1 && instance <= last_instance() && repeats(instance))
      add(FunctionKind::gather, instance, -1);
  }

  bool repeats(std::int32_t instance) const {
    const Id segment = plan_.instances[static_cast<std::size_t>(instance)].segment;
    const auto at = static_cast<std::size_t>(instance);
    return (at > 0 && plan_.instances[at - 1].segment == segment) ||
           (at + 1 < plan_.instances.size() && plan_.instances[at + 1].segment == segment);
  }

  struct Pending {
    std::int32_t function = -1, piece = 0, instance = 0;
  };

  Plan& plan_;
  Pending pending_;  // the rest of a reduction
};

}  // namespace

void order_calls(Plan& plan) { Order(plan).run(); }

}  // namespace prun
