// Strategy offload: gradients, updates and parameters of different layers are under way at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "estimate/simulate.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::offload_times_test {
namespace {

// Seconds: each way as long as an update, all else takes next to nothing but forward.
class OffloadCostModel final : public CostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    const Op& op = program.op(step.op);
    if (op.function == FunctionKind::forward) return 0.05;
    if (op.function != FunctionKind::update) return 1e-6;
    if (!op.def->copies) return 1;
    return step.operands.front().address.range == 0 ? 0.5 : 1;  // gradient and parameter in, parameter out
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-6; }
};

// A copy takes less than a pass, and nothing else any time.
class PassCostModel : public CostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    switch (program.op(step.op).function) {
      case FunctionKind::forward: return 0.05;
      case FunctionKind::backward: return 0.1;
      case FunctionKind::gather:
      case FunctionKind::reduce: return program.op(step.op).def->copies ? 0.01 : 1e-6;
      default: return 1e-6;
    }
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-6; }
};

struct Timeline {
  explicit Timeline(const Assembly& offloaded, std::unique_ptr<CostModel> its_cost_model = nullptr)
      : assembly(offloaded),
        cost_model(its_cost_model ? std::move(its_cost_model) : std::make_unique<OffloadCostModel>()),
        simulation(
            simulate(all_ranks(offloaded.program(), [&](int) -> const Plan& { return assembly.plan(); }),
                     *cost_model, {5})) {
    for (const Call& call : assembly.plan().calls) calls[{call.queue, call.position}] = &call;
  }

  const Call& call_of(const Event& event) const { return *calls.at({event.queue, event.position}); }
  FunctionKind kind_of(const Event& event) const {
    return assembly.plan().functions[static_cast<std::size_t>(call_of(event).function)].kind;
  }
  const QueueInfo& queue_of(const Event& event) const {
    return assembly.plan().queues[static_cast<std::size_t>(event.queue)];
  }

  // Events of a step's function on queues of that name.
  std::vector<Event> of(FunctionKind kind, std::string_view queue, std::int64_t step) const {
    std::vector<Event> found;
    for (const Event& event : simulation.ranks.front().events)
      if (event.waits_for < 0 && event.step == step && kind_of(event) == kind &&
          queue_of(event).name == queue)
        found.push_back(event);
    return found;
  }

  const Assembly& assembly;
  std::unique_ptr<CostModel> cost_model;
  Simulation simulation;
  std::map<std::pair<std::int32_t, std::int32_t>, const Call*> calls;
};

double seconds_of(const std::vector<Event>& events) {
  double sum = 0;
  for (const Event& event : events) sum += event.end - event.begin;
  return sum;
}

class OffloadTimes : public testing::TestWithParam<Target> {};

TEST_P(OffloadTimes, GradientsComeAndParametersGoWhileOthersAreUpdated) {
  const Assembly assembly(
      tiny_recipe(with({"model.layers=12", "precision.compute=bf16"}, GetParam().sets), offloaded()),
      plugins());
  const Timeline timeline(assembly);
  std::vector<Event> in = timeline.of(FunctionKind::update, "copy.out", 3);
  in.erase(in.begin());  // the numbers that all updates read
  const std::vector<Event> updates = timeline.of(FunctionKind::update, "compute.1", 3),
                           out = timeline.of(FunctionKind::update, "copy.in", 3);
  ASSERT_EQ(updates.size(), 14u);
  ASSERT_EQ(in.size(), updates.size());
  ASSERT_EQ(out.size(), updates.size());
  const double all = seconds_of(in) + seconds_of(updates) + seconds_of(out);
  EXPECT_LT(out.back().end - in.front().begin, all / 3 * 1.25) << "of " << all << " one after the other";
  for (std::size_t i = 0; i + 1 < updates.size(); ++i) {
    EXPECT_LT(in[i + 1].begin, updates[i].end) << i;
    EXPECT_LT(timeline.call_of(updates[i]).instance, timeline.call_of(updates[i + 1]).instance);
  }
}

// The submitter runs ahead: the first layers compute with their new parameters while the last are updated.
TEST_P(OffloadTimes, TheNextForwardBeginsWhileLaterLayersAreUpdated) {
  const Assembly assembly(
      tiny_recipe(with({"model.layers=12", "precision.compute=bf16"}, GetParam().sets), offloaded()),
      plugins());
  const Timeline timeline(assembly);
  const std::vector<Event> updates = timeline.of(FunctionKind::update, "compute.1", 3),
                           forward = timeline.of(FunctionKind::forward, "compute", 4);
  ASSERT_GT(forward.size(), 12u);
  EXPECT_LT(forward[1].begin, updates[3].end) << "the first layer's";
  EXPECT_GE(forward[12].begin, updates[12].end) << "the last layer's, of its own update";
}

// The next layer's parameters come and the last one's gradients go while another computes.
TEST_P(OffloadTimes, ParametersComeAndGradientsGoBesideThePasses) {
  const Assembly assembly(
      tiny_recipe(with({"model.layers=12", "precision.compute=bf16", "batch.global=1", "run.bucket_bytes=0B"},
                       GetParam().sets),
                  offloaded(true, true)),
      plugins());
  const Timeline timeline(assembly, std::make_unique<PassCostModel>());
  const std::vector<Event> fetched = timeline.of(FunctionKind::gather, "copy.in", 3),
                           left = timeline.of(FunctionKind::reduce, "copy.out", 3),
                           forward = timeline.of(FunctionKind::forward, "compute", 3),
                           backward = timeline.of(FunctionKind::backward, "compute", 3);
  ASSERT_EQ(forward.size(), 14u);
  EXPECT_GE(fetched.size(), 2 * 12u);
  ASSERT_EQ(left.size(), 14u);
  EXPECT_LT(fetched[3].begin, forward[2].end);
  EXPECT_LT(left[2].begin, backward[4].begin);
}

TEST_P(OffloadTimes, ActivationsLeaveBesideForwardAndReturnBesideBackward) {
  const Assembly assembly(tiny_recipe(with({"model.layers=12", "batch.global=1"}, GetParam().sets),
                                      offloaded(false, false, true)),
                          plugins());
  const Timeline timeline(assembly, std::make_unique<PassCostModel>());
  const std::vector<Event> left = timeline.of(FunctionKind::put_away, "copy.out", 3),
                           back = timeline.of(FunctionKind::bring_back, "copy.in", 3),
                           forward = timeline.of(FunctionKind::forward, "compute", 3),
                           backward = timeline.of(FunctionKind::backward, "compute", 3);
  ASSERT_EQ(left.size(), back.size());
  ASSERT_GE(left.size(), 12u);
  for (std::size_t i = 2; i + 2 < 12; ++i) {
    EXPECT_LT(left[i].begin, forward[i + 2].end) << i;
    EXPECT_LT(back[i + 1].end, backward[i + 1].begin) << i;
  }
}

// What is on the host, with nothing that makes updates wait for the norm.
Recipe updated_beside_backward(const Target& target, bool everything) {
  return tiny_recipe(with({"model.layers=12", "precision.compute=bf16", "batch.global=1",
                           "run.bucket_bytes=0B", "model.tied=false", "optimizer.clip=0"},
                          target.sets),
                     offloaded(everything, everything));
}

// Without clipping: the last layer's update has begun before the first one's backward, but for one in four.
TEST_P(OffloadTimes, UpdatesRunBesideBackward) {
  for (const bool everything : {false, true}) {
    const Assembly assembly(updated_beside_backward(GetParam(), everything), plugins());
    const Timeline timeline(assembly, std::make_unique<PassCostModel>());
    const std::vector<Event> updates = timeline.of(FunctionKind::update, "compute.1", 3),
                             backward = timeline.of(FunctionKind::backward, "compute", 3);
    ASSERT_EQ(updates.size(), 14u);
    ASSERT_EQ(backward.size(), updates.size());
    std::vector<std::int32_t> order;
    for (const Event& event : updates) order.push_back(timeline.call_of(event).instance);
    EXPECT_EQ(order, (std::vector<std::int32_t>{14, 12, 11, 10, 8, 7, 6, 4, 3, 2, 1, 5, 9, 13}));
    for (std::size_t i = 0; i < 9; ++i)
      EXPECT_LT(updates[i].begin, backward[static_cast<std::size_t>(14 - order[i]) + 2].end) << i;
  }
}

// Updates that take nearly as long as both passes: forward does not wait until they have caught up.
class SlowUpdateCostModel final : public PassCostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    return program.op(step.op).kind() == "adamw" ? 0.17 : PassCostModel::kernel(program, step);
  }
};

TEST_P(OffloadTimes, UpdatesMayTakeAsLongAsBothPasses) {
  for (const bool everything : {false, true}) {
    const Assembly assembly(updated_beside_backward(GetParam(), everything), plugins());
    const Timeline timeline(assembly, std::make_unique<SlowUpdateCostModel>());
    const double passes = seconds_of(timeline.of(FunctionKind::forward, "compute", 3)) +
                          seconds_of(timeline.of(FunctionKind::backward, "compute", 3)),
                 updates = seconds_of(timeline.of(FunctionKind::update, "compute.1", 3)),
                 step = timeline.of(FunctionKind::forward, "compute", 4).front().begin -
                        timeline.of(FunctionKind::forward, "compute", 3).front().begin;
    EXPECT_GT(updates, 0.75 * passes);
    EXPECT_LT(updates, passes);
    EXPECT_LT(step, 1.14 * passes) << updates;
  }
}

// One layer's state comes and another's goes back while a third is updated.
TEST_P(OffloadTimes, StateComesAndGoesWhileOthersAreUpdatedOnTheDevice) {
  const Assembly assembly(
      tiny_recipe(with({"model.layers=12", "precision.compute=bf16"}, GetParam().sets), updated_here),
      plugins());
  const Timeline timeline(assembly);
  const std::vector<Event> in = timeline.of(FunctionKind::update, "copy.in", 3),
                           updates = timeline.of(FunctionKind::update, "compute", 3),
                           out = timeline.of(FunctionKind::update, "copy.out", 3);
  ASSERT_EQ(in.size(), 14u);
  ASSERT_EQ(updates.size(), in.size());
  ASSERT_EQ(out.size(), in.size());
  EXPECT_TRUE(timeline.of(FunctionKind::update, "compute.1", 3).empty());
  for (std::size_t i = 1; i + 1 < updates.size(); ++i) {
    EXPECT_LT(in[i + 1].begin, updates[i].end) << i;
    EXPECT_LT(out[i - 1].begin, updates[i].end) << i;
  }
}

// One tensor's state comes while another's goes back, from layer to layer too.
TEST_P(OffloadTimes, TensorsComeAndGoWhileOthersAreUpdated) {
  const Assembly assembly(tiny_recipe(with({"model.layers=12", "precision.compute=bf16"}, GetParam().sets),
                                      updated_here + by_tensor),
                          plugins());
  const Timeline timeline(assembly);
  const std::vector<Event> in = timeline.of(FunctionKind::update, "copy.in", 3),
                           updates = timeline.of(FunctionKind::update, "compute", 3),
                           out = timeline.of(FunctionKind::update, "copy.out", 3);
  ASSERT_GE(updates.size(), 3u * 12u);
  ASSERT_EQ(out.size(), updates.size());
  const auto beside_others = std::count_if(out.begin(), out.end(), [&](const Event& goes) {
    return std::any_of(in.begin(), in.end(),
                       [&](const Event& comes) { return comes.begin < goes.end && goes.begin < comes.end; });
  });
  EXPECT_GT(beside_others, static_cast<std::ptrdiff_t>(out.size()) / 2);
}

// What a drive copies takes as long as it is large, and all else next to nothing.
class DriveCostModel final : public CostModel {
 public:
  explicit DriveCostModel(const Assembly& assembly)
      : drive_(static_cast<std::int32_t>(assembly.devices().size()) - 1) {}

  double kernel(const Program&, const PlannedStep& step) override {
    return step.device == drive_ ? 1e-3 * static_cast<double>(step.operands.front().address.bytes) : 1e-6;
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-6; }

 private:
  std::int32_t drive_;
};

// Of a step, how much the drive reads, and how much it writes.
std::vector<double> drive_at_work(const Assembly& assembly) {
  const Timeline timeline(assembly, std::make_unique<DriveCostModel>(assembly));
  std::vector<double> shares;
  for (const char* const queue : {"nvme.read", "nvme.write"})
    shares.push_back(seconds_of(timeline.of(FunctionKind::update, queue, 3)) /
                     timeline.simulation.step_seconds);
  return shares;
}

Recipe with_large_embedding(const Target& target, const std::vector<std::string>& sets = {}) {
  return tiny_recipe(
      with(
          with({"model.layers=12", "model.hidden=512", "model.vocab=32768", "optimizer.clip=1"}, target.sets),
          sets),
      offloaded_to_drives("/tmp"));
}

// An embedding that is many times a layer, in front of the layers and behind them.
TEST_P(OffloadTimes, DrivesWaitForNothing) {
  const Assembly assembly(with_large_embedding(GetParam()), plugins());
  for (const double share : drive_at_work(assembly)) EXPECT_GT(share, 0.999);
}

TEST(OffloadTimesWithLittleMemory, DrivesWaitWhereThereIsNoRoomForMore) {
  const Assembly far(with_large_embedding(on_cpu()), plugins());
  const std::int64_t needed = far.bytes_in_memory_of(0, far.plan());
  const Assembly near(with_large_embedding(on_cpu(), {"device.memory=" + std::to_string(needed - 1) + "B"}),
                      plugins());
  EXPECT_LT(near.bytes_in_memory_of(0, near.plan()), needed);
  EXPECT_EQ(near.program().requests().said_to_fit, far.program().requests().said_to_fit);
  for (const double share : drive_at_work(near)) EXPECT_LT(share, 0.95);
}

INSTANTIATE_TEST_SUITE_P(Targets, OffloadTimes, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace prun::test::offload_times_test
