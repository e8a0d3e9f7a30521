// Writes plans by hand: calls that take given times, on queues of one's own.
#pragma once

#include <memory>

#include "estimate/simulate.hpp"

namespace prun::test {

class PlanBuilder {
 public:
  PlanBuilder() : program_(std::make_shared<OpRegistry>(), Precision{}, ModelContext{1, 1}) {
    segment_ = program_.add_segment("block", 1);
    plan_.instances.push_back({segment_, 0});
  }

  std::int32_t queue(const std::string& name, bool workers, AxisId axis = no_axis) {
    plan_.queues.push_back({name, workers, axis, 0});
    return static_cast<std::int32_t>(plan_.queues.size()) - 1;
  }

  // Returns the wait of calls that need it. A kernel's op is its time: see FixedCostModel.
  Wait kernel(std::int32_t queue, Id seconds, std::vector<Wait> waits = {}) {
    PlannedStep step;
    step.op = seconds;
    return add(queue, {std::move(step)}, std::move(waits));
  }
  Wait exchange(std::int32_t queue, CommKind kind, std::int64_t bytes, std::vector<Wait> waits = {},
                std::int32_t peer = -1) {
    return add(queue, {exchange_step(kind, bytes, peer)}, std::move(waits));
  }
  // Adds the exchanges of one call.
  Wait exchanges(std::int32_t queue, CommKind kind, const std::vector<std::int64_t>& bytes) {
    std::vector<PlannedStep> steps;
    for (const std::int64_t each : bytes) steps.push_back(exchange_step(kind, each, -1));
    return add(queue, std::move(steps), {});
  }

  SimulatedRank rank(int number, std::vector<Group> groups = {}) const {
    groups.resize(plan_.queues.size());
    return {&program_, &plan_, number, std::move(groups)};
  }
  Plan& plan() { return plan_; }
  const Program& program() const { return program_; }

 private:
  static PlannedStep exchange_step(CommKind kind, std::int64_t bytes, std::int32_t peer) {
    PlannedStep step;
    step.exchange = PlannedExchange{kind, Reduction::sum, DType::u8, bytes, peer, {}, {}};
    return step;
  }

  Wait add(std::int32_t queue, std::vector<PlannedStep> steps, std::vector<Wait> waits) {
    PlannedFunction function;
    function.segment = segment_;
    function.pieces.push_back({0, static_cast<std::int32_t>(steps.size()), queue});
    function.steps = std::move(steps);
    Call call;
    call.function = static_cast<std::int32_t>(plan_.functions.size());
    call.queue = queue;
    call.position = plan_.queues[static_cast<std::size_t>(queue)].calls++;
    call.microbatch = call.position;
    call.waits = std::move(waits);
    plan_.functions.push_back(std::move(function));
    plan_.calls.push_back(call);
    return {queue, call.position, 0};
  }

  Program program_;
  Plan plan_;
  Id segment_ = 0;
};

inline Group group(std::vector<int> members) {
  return std::make_shared<const std::vector<int>>(std::move(members));
}

// Estimates calls in seconds: kernels by their ops, exchanges at one second a byte.
class FixedCostModel : public CostModel {
 public:
  double kernel(const Program&, const PlannedStep& step) override {
    ++asked;
    return static_cast<double>(step.op);
  }
  double exchange(const PlannedExchange& exchange, std::int64_t, std::string_view) override {
    ++asked;
    return static_cast<double>(exchange.count);
  }
  Overheads overheads() override { return extra; }

  Overheads extra;
  int asked = 0;
};

}  // namespace prun::test
