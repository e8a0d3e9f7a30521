// The worker pool: who runs what, that nothing is lost over many runs, and what a run costs besides its work.
#include "worker_pool.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "call_counter.hpp"
#include "prun/error.hpp"

namespace prun::cpu {
namespace {

using std::chrono::microseconds;

Binding anywhere() { return {usable_cores(), false}; }

struct Setting {
  std::int32_t threads;
  int spin_us;
};

class WorkerPoolTest : public testing::TestWithParam<Setting> {
 protected:
  WorkerPool pool_{GetParam().threads, anywhere(), microseconds(GetParam().spin_us)};
  Workers workers_ = pool_.workers();
};

TEST_P(WorkerPoolTest, DealsIndexIToThreadIModuloCount) {
  const std::int64_t count = GetParam().threads;
  for (std::int64_t tasks : {0, 1, 2, 3, 7, 8, 9, 64}) {
    std::vector<pid_t> ran_on(static_cast<std::size_t>(tasks), 0);
    parallel(workers_, tasks, [&](std::int64_t i) { ran_on[static_cast<std::size_t>(i)] = gettid(); });
    for (std::int64_t i = 0; i < tasks; ++i) {
      const pid_t thread = ran_on[static_cast<std::size_t>(i)];
      EXPECT_EQ(thread, ran_on[static_cast<std::size_t>(i % count)]) << i << " of " << tasks;
      EXPECT_EQ(thread == gettid(), i % count == 0) << i << " of " << tasks;
      for (std::int64_t j = 0; j < i && i < count; ++j)
        EXPECT_NE(thread, ran_on[static_cast<std::size_t>(j)]) << i << " and " << j;
    }
  }
}

// Plain memory written by each thread and read by the next run's threads: a missing happens-before shows as a
// wrong sum, or to the thread sanitizer.
TEST_P(WorkerPoolTest, RunsEveryTaskOnceInManyRuns) {
  constexpr int runs = 100'000, most_tasks = 17;
  std::array<std::int64_t, most_tasks> done{};
  std::array<std::int64_t, most_tasks> expected{};
  // Fewer where a thread waits long for a core.
  const auto enough = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (int run = 0; run < runs && std::chrono::steady_clock::now() < enough; ++run) {
    const std::int64_t tasks = run % (most_tasks + 1);
    parallel(workers_, tasks, [&](std::int64_t i) { done[static_cast<std::size_t>(i)] += run; });
    for (std::int64_t i = 0; i < tasks; ++i) expected[static_cast<std::size_t>(i)] += run;
    ASSERT_EQ(done, expected) << "run " << run;
  }
}

TEST_P(WorkerPoolTest, SeesWhatOtherThreadsWroteInTheRunBefore) {
  constexpr std::size_t cells = 8;
  std::array<std::int64_t, cells> now{}, next{};
  for (int run = 0; run < 2'000; ++run) {
    parallel(workers_, cells, [&](std::int64_t i) {
      next[static_cast<std::size_t>(i)] = now[static_cast<std::size_t>(i + 1) % cells] + 1;
    });
    std::swap(now, next);
  }
  for (std::int64_t cell : now) EXPECT_EQ(cell, 2'000);
}

TEST_P(WorkerPoolTest, NeitherAllocatesNorLocks) {
  if (!test::calls_are_counted()) GTEST_SKIP() << "the sanitizer intercepts these calls itself";
  std::array<std::int64_t, 8> done{};
  const test::Calls before = test::calls_so_far();
  for (int run = 0; run < 2'000; ++run)
    parallel(workers_, 8, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
  const test::Calls after = test::calls_so_far();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.locks, before.locks);
  for (std::int64_t count : done) EXPECT_EQ(count, 2'000);
}

TEST_P(WorkerPoolTest, WakesWorkersThatHaveFallenAsleep) {
  std::array<int, 8> done{};
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(microseconds(GetParam().spin_us + 1'000));
    parallel(workers_, 8, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
  }
  for (int count : done) EXPECT_EQ(count, 20);
}

TEST_P(WorkerPoolTest, WakesACallerThatHasFallenAsleep) {
  std::array<int, 8> done{};
  for (int run = 0; run < 20; ++run)
    parallel(workers_, 8, [&](std::int64_t i) {
      if (i % GetParam().threads != 0) std::this_thread::sleep_for(microseconds(GetParam().spin_us + 500));
      ++done[static_cast<std::size_t>(i)];
    });
  for (int count : done) EXPECT_EQ(count, 20);
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndSpins, WorkerPoolTest,
                         testing::Values(Setting{1, 200}, Setting{2, 200}, Setting{3, 200}, Setting{8, 200},
                                         Setting{1, 0}, Setting{2, 0}, Setting{3, 0}, Setting{8, 0}),
                         [](const auto& setting) {
                           return std::to_string(setting.param.threads) + "threads" +
                                  std::to_string(setting.param.spin_us) + "us";
                         });

TEST(WorkerPool, StopsWhetherItsWorkersSpinOrSleep) {
  int alive = 0;
  for (int round = 0; round < 50; ++round) {
    const WorkerPool pool(4, anywhere(), microseconds(round % 2 ? 0 : 100'000));
    alive += pool.count();
  }
  EXPECT_EQ(alive, 200);
}

TEST(WorkerPool, AnIdlePoolUsesNoCore) {
  WorkerPool pool(4, anywhere(), microseconds(1'000));
  int done[4] = {};
  parallel(pool.workers(), 4, [&](std::int64_t i) { done[i] = 1; });
  EXPECT_EQ(done[0] + done[1] + done[2] + done[3], 4);
  // A worker that waited for a core may spin later than the others, once.
  std::clock_t least = CLOCKS_PER_SEC;
  for (int attempt = 0; attempt < 5 && least >= CLOCKS_PER_SEC / 20; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    least = std::min(least, std::clock() - before);
  }
  EXPECT_LT(least, CLOCKS_PER_SEC / 20);
}

TEST(WorkerPool, NamesItsThreads) {
  WorkerPool pool(3, anywhere(), microseconds(0));
  std::array<std::array<char, 16>, 3> names{};
  parallel(pool.workers(), 3,
           [&](std::int64_t i) { prctl(PR_GET_NAME, names[static_cast<std::size_t>(i)].data()); });
  EXPECT_STREQ(names[1].data(), "prun-w1");
  EXPECT_STREQ(names[2].data(), "prun-w2");
}

TEST(WorkerPool, PinsWorkerIToCoreI) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const auto count = static_cast<std::int32_t>(cores.size());
  WorkerPool pool(count, {cores, true}, microseconds(100));
  std::vector<std::vector<int>> allowed(cores.size());
  parallel(pool.workers(), count,
           [&](std::int64_t i) { allowed[static_cast<std::size_t>(i)] = usable_cores(); });
  for (std::size_t i = 1; i < cores.size(); ++i) EXPECT_EQ(allowed[i], std::vector<int>{cores[i]});
  EXPECT_EQ(allowed[0], cores) << "the caller binds itself";
}

TEST(WorkerPool, UnpinnedWorkersMayUseAllCores) {
  WorkerPool pool(2, anywhere(), microseconds(100));
  std::vector<int> allowed[2];
  parallel(pool.workers(), 2, [&](std::int64_t i) { allowed[i] = usable_cores(); });
  EXPECT_EQ(allowed[1], usable_cores());
}

TEST(WorkerPool, RefusesToPinMoreThreadsThanCores) {
  EXPECT_THROW(WorkerPool(2, {{usable_cores().front()}, true}, microseconds(0)), Error);
  EXPECT_THROW(WorkerPool(0, anywhere(), microseconds(0)), Error);
}

TEST(WorkerPool, SaysWhichCoreItCannotUse) {
  constexpr int no_such_core = 100'000;
  try {
    WorkerPool(2, {{usable_cores().front(), no_such_core}, true}, microseconds(0));
    FAIL() << "core " << no_such_core << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("100000"), std::string::npos) << error.what();
  }
}

TEST(WorkerPool, SplitsRangesWithoutGapOrOverlap) {
  WorkerPool pool(3, anywhere(), microseconds(50));
  for (std::int64_t n : {0, 1, 15, 16, 17, 1000}) {
    std::vector<int> touched(static_cast<std::size_t>(n), 0);
    parallel_ranges(pool.workers(), n, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(touched, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

// The counters themselves: a zero above means something only if these are not zero.
TEST(CallCounter, CountsAllocationsAndLocks) {
  if (!test::calls_are_counted()) GTEST_SKIP() << "the sanitizer intercepts these calls itself";
  const test::Calls before = test::calls_so_far();
  std::mutex mutex;
  const std::lock_guard guard(mutex);
  const std::vector<int> memory(1000, usable_cores().front());
  const test::Calls after = test::calls_so_far();
  EXPECT_GT(after.allocations, before.allocations);
  EXPECT_GT(after.locks, before.locks);
  EXPECT_EQ(memory.size(), 1000u);
}

}  // namespace
}  // namespace prun::cpu
