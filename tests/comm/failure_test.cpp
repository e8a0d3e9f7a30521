// What happens when a member dies, gives up, leaves early, or is told to stop.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "ranks.hpp"

namespace prun::test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

CommOp all_reduce(std::vector<float>& data) {
  return {CommKind::all_reduce,
          Reduction::sum,
          DType::f32,
          -1,
          data.data(),
          data.data(),
          static_cast<std::int64_t>(data.size())};
}

// The message of the comm_failed that finish() must throw within the limit.
std::string failure_of(TestComm& comm, Clock::duration limit) {
  const auto begin = Clock::now();
  try {
    comm.finish();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::comm_failed, std::string("another error: ") + error.what());
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    require(took <= limit, "it took " + std::to_string(took.count()) + " ms");
    return error.what();
  }
  throw std::runtime_error("finish() returned");
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The last of `ranks` ends itself in the middle of the work; what the others say.
void expect_death_noticed(int ranks, const PluginOptions& options, std::size_t count, Clock::duration limit) {
  const std::vector<Outcome> outcomes = run_ranks(ranks, [&](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, options);
    std::vector<float> data(count, 1.0f);
    comm.run(all_reduce(data));
    if (rank.number == rank.size - 1) ::kill(::getpid(), SIGKILL);
    comm.start({all_reduce(data)});
    const std::string message = failure_of(comm, limit);
    require(holds(message, "test.group") && holds(message, "member " + std::to_string(rank.size - 1)) &&
                !holds(message, "given up"),
            message);
    // It stays so.
    require(failure_of(comm, 100ms) == message, "another message the second time");
  });
  for (int i = 0; i + 1 < ranks; ++i)
    EXPECT_EQ(outcomes[static_cast<std::size_t>(i)].message, "") << "rank " << i;
  EXPECT_TRUE(outcomes.back().killed);
}

TEST(Failure, KilledPeerIsNoticedSmall) { expect_death_noticed(2, {}, 10, 1s); }
TEST(Failure, KilledPeerIsNoticedLarge) { expect_death_noticed(2, {}, 3000000, 1s); }
TEST(Failure, KilledPeerIsNoticedByAll) { expect_death_noticed(4, {.spin_us = 0}, 300000, 1s); }
TEST(Failure, KilledPeerIsNoticedOverTcp) { expect_death_noticed(2, {.shared_memory = false}, 10, 2s); }
TEST(Failure, KilledPeerIsNoticedOverTcpByAll) {
  expect_death_noticed(3, {.shared_memory = false}, 300000, 2s);
}

TEST(Failure, TcpWorksWithoutSharedMemory) {
  expect_ranks(3, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.shared_memory = false});
    for (const std::size_t count : {1u, 5000u, 700001u}) {
      std::vector<float> data(count, 2.0f);
      comm.run(all_reduce(data));
      require(data.front() == 6.0f && data.back() == 6.0f, "a sum");
    }
  });
}

TEST(Failure, AbortEndsAWait) {
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    if (rank.number == 1) std::this_thread::sleep_for(1s);
    if (rank.number == 1) return;
    std::vector<float> data(1000, 1.0f);
    comm.start({all_reduce(data)});
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      comm.abort();
    });
    const std::string message = failure_of(comm, 300ms);
    other.join();
    require(holds(message, "aborted"), message);
    require(holds(failure_of(comm, 10ms), "aborted"), "not the second time");
    try {
      comm.start({all_reduce(data)});
    } catch (const Error& error) {
      return require(error.code() == ErrorCode::comm_failed, error.what());
    }
    throw std::runtime_error("start() after abort() returned");
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.message, "");
}

// A member that is done may leave while others are still busy with each other.
TEST(Failure, LeavingInOrderIsNone) {
  expect_ranks(3, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    std::vector<float> data(10, 1.0f);
    comm.run(all_reduce(data));
    if (rank.number == 2) return;
    if (rank.number == 0) std::this_thread::sleep_for(500ms);
    const CommOp op{rank.number == 0 ? CommKind::send : CommKind::recv,
                    Reduction::sum,
                    DType::f32,
                    1 - rank.number,
                    data.data(),
                    data.data(),
                    10};
    comm.run(op);
  });
}

TEST(Failure, LeavingTooEarlyIsNamed) {
  expect_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    if (rank.number == 1) return;
    std::vector<float> data(10, 1.0f);
    comm.start({all_reduce(data)});
    const std::string message = failure_of(comm, 1s);
    require(holds(message, "member 1") && holds(message, "left before"), message);
  });
}

TEST(Failure, DifferentOperationsAreNamed) {
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    std::vector<float> data(rank.number == 0 ? 10 : 1000, 1.0f);
    comm.start({all_reduce(data)});
    if (rank.number == 0) {
      const std::string message = failure_of(comm, 1s);
      require(holds(message, "different operations"), message);
    } else {
      comm.finish();
    }
  });
  EXPECT_EQ(outcomes[0].message, "");
}

// UCX takes over the signals of a crash when it is loaded; the plugin gives them back.
TEST(Failure, CrashSignalsStayPruns) {
  const auto handlers = [] {
    std::vector<void (*)(int)> list;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      list.push_back(action.sa_handler);
    }
    return list;
  };
  expect_ranks(1, [&](const Rank& rank) {
    const auto before = handlers();
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    require(handlers() == before, "a signal is handled that was not, or otherwise");
  });
}

}  // namespace
}  // namespace prun::test
