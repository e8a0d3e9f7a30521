// After warm-up the threads that feed and serve the compute queue allocate nothing and take no lock, even
// while they are recorded.
#include <gtest/gtest.h>

#include "call_counter.hpp"
#include "execute/recorder.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

// The host thread and the data thread may allocate; while steps run whose batches are there already, only the
// queues' threads work.
TEST(Quiet, ComputeThreadsNeitherAllocateNorLock) {
  if (!calls_are_counted()) GTEST_SKIP() << "a sanitizer stands in the way of counting";
  const Assembly assembly(tiny_recipe({"batch.micro=1", "model.dropout=0.1", "device.threads=2"}), plugins());
  Recorder recorder(assembly.plan(), 4);
  Executor executor(assembly.program(), assembly.plan(), assembly.devices(), {}, {}, {&recorder});
  executor.start_step();
  for (int warm_up = 0; warm_up < 3; ++warm_up) {
    executor.start_step();
    executor.finish_step();
  }
  const Calls before = calls_so_far();
  for (int step = 0; step < 10; ++step) {
    executor.start_step();
    executor.finish_step();
  }
  const Calls after = calls_so_far();
  EXPECT_EQ(after.allocations - before.allocations, 0);
  EXPECT_EQ(after.locks - before.locks, 0);
}

}  // namespace
}  // namespace prun::test
