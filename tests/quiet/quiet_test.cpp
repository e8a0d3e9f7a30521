// After warm-up the threads that feed and serve queues allocate nothing and take no lock, even while they are
// recorded.
#include <gtest/gtest.h>

#include "call_counter.hpp"
#include "inspect/recorder.hpp"
#include "support/assembly_fixture.hpp"
#include "support/eager.hpp"
#include "support/layouts.hpp"

namespace prun::test {
namespace {

// What the whole process does in ten steps, each started while the one before it runs.
Calls calls_in_steps(Executor& executor) {
  executor.start_step();
  const auto steps = [&](int count) {
    for (int step = 0; step < count; ++step) {
      executor.start_step();
      executor.finish_step();
    }
  };
  steps(3);  // to warm up
  const Calls before = calls_so_far();
  steps(10);
  const Calls after = calls_so_far();
  return {after.allocations - before.allocations, after.locks - before.locks};
}

void expect_none(const Calls& calls) {
  EXPECT_EQ(calls.allocations, 0);
  EXPECT_EQ(calls.locks, 0);
}

// The host thread and the data thread may allocate; while steps run whose batches are there already, only the
// queues' threads work.
TEST(Quiet, ComputeThreadsNeitherAllocateNorLock) {
  if (!calls_are_counted()) GTEST_SKIP() << "a sanitizer stands in the way of counting";
  const Assembly assembly(tiny_recipe({"batch.micro=1", "model.dropout=0.1", "device.threads=2"}), plugins());
  Recorder recorder(assembly.plan(), 4);
  Executor executor(assembly.program(), assembly.plan(), assembly.devices(), {}, {}, {&recorder});
  expect_none(calls_in_steps(executor));
}

class Live final : public Probe {
 public:
  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override { ++calls_; }
  std::int64_t calls() const { return calls_; }

 private:
  std::int64_t calls_ = 0;
};

class SubmitterIsQuiet : public testing::TestWithParam<Layout> {};

// On a device that does nothing itself, so that nothing has to be left out of the count. What it takes to let
// the submitter begin a step is a word of memory, on which it may sleep.
TEST_P(SubmitterIsQuiet, NeitherAllocatesNorLocks) {
  if (!calls_are_counted()) GTEST_SKIP() << "a sanitizer stands in the way of counting";
  const Assembly assembly(tiny_recipe(with(on_async().sets, GetParam().sets), GetParam().text), plugins());
  const auto device = eager_device();
  const auto comm = eager_comm();
  Devices devices = assembly.devices();
  devices.front() = device.get();
  Recorder recorder(assembly.plan(), 4);
  Live live;
  Executor executor(assembly.program(), assembly.plan(), devices, {}, comms_of(assembly.plan(), *comm),
                    {&recorder, &live});
  expect_none(calls_in_steps(executor));
  EXPECT_FALSE(recorder.events().empty());
  EXPECT_GT(live.calls(), 0);
}

std::vector<Layout> submitted_layouts() {
  std::vector<Layout> all = layouts();
  // Its updates run on a device whose queues block: the submitter's wait for them, and they for the
  // submitter's.
  all.push_back({"offload", offloaded(), {}});
  all.push_back({"all_offloaded", offloaded(true, true, true), {"batch.micro=4"}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, SubmitterIsQuiet, testing::ValuesIn(submitted_layouts()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace prun::test
