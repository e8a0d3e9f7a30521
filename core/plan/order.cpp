#include "plan/order.hpp"

namespace prun {
namespace {

class Order {
 public:
  explicit Order(Plan& plan) : plan_(plan) { plan_.queues = {{"compute", true, 0}, {"copy", false, 0}}; }

  void run() {
    // The copy queue may overwrite an input slot once the step before no longer reads it.
    const std::int32_t first_load = add(FunctionKind::load, step_instance, 0, copy_queue);
    all_instances(FunctionKind::zero, -1);
    add(FunctionKind::begin, step_instance, -1, compute_queue);
    loads_.push_back(first_load);
    const auto count = static_cast<std::int32_t>(plan_.microbatches);
    for (std::int32_t microbatch = 0; microbatch < count; ++microbatch) {
      if (microbatch + 1 < count) load_ahead(microbatch + 1);
      run_microbatch(microbatch);
    }
    all_instances(FunctionKind::norm, -1);
    add(FunctionKind::finish, step_instance, -1, compute_queue);
    all_instances(FunctionKind::update, -1);
    add(FunctionKind::report, step_instance, -1, compute_queue);
    // Known only now: the last call of the step before that reads input slot 0 and 1.
    for (std::int32_t microbatch = 0; microbatch < count && microbatch < input_slots; ++microbatch)
      call_at(loads_[static_cast<std::size_t>(microbatch)])
          .waits.push_back({compute_queue, last_reader_of_slot(microbatch), 1});
  }

 private:
  static constexpr std::int32_t step_instance = 0;

  bool exists(FunctionKind kind, std::int32_t instance, std::int32_t& function) const {
    const Id segment = plan_.instances[static_cast<std::size_t>(instance)].segment;
    for (function = 0; function < static_cast<std::int32_t>(plan_.functions.size()); ++function) {
      const PlannedFunction& f = plan_.functions[static_cast<std::size_t>(function)];
      if (f.segment == segment && f.kind == kind) return true;
    }
    return false;
  }

  // Returns the call's index in plan.calls, or -1 where the segment has no such function.
  std::int32_t add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch, std::int32_t queue) {
    std::int32_t function = 0;
    if (!exists(kind, instance, function)) return -1;
    Call call;
    call.function = function;
    call.instance = instance;
    call.microbatch = microbatch;
    call.queue = queue;
    call.position = plan_.queues[static_cast<std::size_t>(queue)].calls++;
    plan_.calls.push_back(std::move(call));
    return static_cast<std::int32_t>(plan_.calls.size()) - 1;
  }

  Call& call_at(std::int32_t index) { return plan_.calls[static_cast<std::size_t>(index)]; }

  void all_instances(FunctionKind kind, std::int32_t microbatch) {
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(plan_.instances.size()); ++i)
      add(kind, i, microbatch, compute_queue);
  }

  void load_ahead(std::int32_t microbatch) {
    const std::int32_t load = add(FunctionKind::load, step_instance, microbatch, copy_queue);
    loads_.push_back(load);
    if (microbatch >= input_slots)
      call_at(load).waits.push_back(
          {compute_queue, done_[static_cast<std::size_t>(microbatch - input_slots)], 0});
  }

  void run_microbatch(std::int32_t microbatch) {
    const auto last = static_cast<std::int32_t>(plan_.instances.size()) - 1;
    const auto first_call = static_cast<std::int32_t>(plan_.calls.size());
    for (std::int32_t i = 1; i <= last; ++i) add(FunctionKind::forward, i, microbatch, compute_queue);
    call_at(first_call)
        .waits.push_back({copy_queue, call_at(loads_[static_cast<std::size_t>(microbatch)]).position, 0});
    for (std::int32_t i = last; i >= 1; --i) {
      add(FunctionKind::backward, i, microbatch, compute_queue);
      add(FunctionKind::backward_weight, i, microbatch, compute_queue);
    }
    done_.push_back(plan_.calls.back().position);
  }

  std::int32_t last_reader_of_slot(std::int32_t slot) const {
    std::int32_t reader = 0;
    for (std::size_t m = static_cast<std::size_t>(slot); m < done_.size(); m += input_slots)
      reader = done_[m];
    return reader;
  }

  Plan& plan_;
  std::vector<std::int32_t> loads_;  // calls, by microbatch
  std::vector<std::int32_t> done_;   // position of each microbatch's last call
};

}  // namespace

void order_calls(Plan& plan) { Order(plan).run(); }

}  // namespace prun
