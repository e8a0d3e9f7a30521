// What happens when a member dies, gives up, leaves early, or is told to stop.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "ranks.hpp"

namespace prun::test::failure_test {
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

// A failure that is noticed at all takes milliseconds, and what waits for something else never ends: the
// limit is for machines that have other things to do.
constexpr Clock::duration soon = 30s;

// The message of the comm_failed that finish() must throw.
std::string failure_of(TestComm& comm) {
  const auto begin = Clock::now();
  try {
    comm.finish();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::comm_failed, std::string("another error: ") + error.what());
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    require(took <= soon, "it took " + std::to_string(took.count()) + " ms");
    return error.what();
  }
  throw std::runtime_error("finish() returned");
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Until all but the last rank are here.
void meet_survivors(const Rank& rank) {
  std::vector<int> survivors = rank.everyone();
  survivors.pop_back();
  const char mine = 0;
  std::vector<char> all(survivors.size());
  SocketExchange exchange(rank.meshes[0], survivors, rank.number);
  const ExchangeApi api = exchange.api();
  raise(api.all_gather(api.context, &mine, 1, all.data()));
}

// The last of `ranks` ends itself in the middle of the work; what the others say.
void expect_death_noticed(int ranks, const PluginOptions& options, std::size_t count) {
  const std::vector<Outcome> outcomes = run_ranks(ranks, [&](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, options);
    std::vector<float> data(count, 1.0f);
    comm.run(all_reduce(data));
    if (rank.number == rank.size - 1) ::kill(::getpid(), SIGKILL);
    comm.start({all_reduce(data)});
    const std::string message = failure_of(comm);
    require(holds(message, "test.group") && holds(message, "member " + std::to_string(rank.size - 1)) &&
                !holds(message, "given up"),
            message);
    // It stays so.
    require(failure_of(comm) == message, "another message the second time");
    meet_survivors(rank);  // one that leaves is gone, too, for whoever looks later
  });
  for (int i = 0; i + 1 < ranks; ++i)
    EXPECT_EQ(outcomes[static_cast<std::size_t>(i)].message, "") << "rank " << i;
  EXPECT_TRUE(outcomes.back().killed);
}

TEST(Failure, KilledPeerIsNoticedSmall) { expect_death_noticed(2, {}, 10); }
TEST(Failure, KilledPeerIsNoticedLarge) { expect_death_noticed(2, {}, 3000000); }
TEST(Failure, KilledPeerIsNoticedByAll) { expect_death_noticed(4, {.spin_us = 0}, 300000); }
TEST(Failure, KilledPeerIsNoticedOverTcp) { expect_death_noticed(2, {.shared_memory = false}, 10); }
TEST(Failure, KilledPeerIsNoticedOverTcpByAll) { expect_death_noticed(3, {.shared_memory = false}, 300000); }

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
    char word = 0;
    const int other_rank = rank.meshes[0].between(rank.number, 1 - rank.number);
    if (rank.number == 1)
      return require(::recv(other_rank, &word, 1, 0) == 1, "rank 0 ended before its time");
    std::vector<float> data(1000, 1.0f);
    comm.start({all_reduce(data)});
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      comm.abort();
    });
    const std::string message = failure_of(comm);
    other.join();
    require(holds(message, "aborted"), message);
    require(holds(failure_of(comm), "aborted"), "not the second time");
    require(::send(other_rank, &word, 1, MSG_NOSIGNAL) == 1, "rank 1 ended before its time");
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
    const std::string message = failure_of(comm);
    require(holds(message, "member 1") && holds(message, "left before"), message);
  });
}

TEST(Failure, DifferentOperationsAreNamed) {
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    std::vector<float> data(rank.number == 0 ? 10 : 1000, 1.0f);
    comm.start({all_reduce(data)});
    if (rank.number == 0) {
      const std::string message = failure_of(comm);
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

// Ranks on the same cores need them while one is late.
TEST(Leaving, TakesNoCoreWhileAnotherMemberStays) {
  expect_ranks(3, [](const Rank& rank) {
    auto comm = std::make_unique<TestComm>(rank.meshes[0], rank.everyone(), rank.number);
    std::vector<float> data(100, 1.0f);
    comm->run(all_reduce(data));
    if (rank.number == 0) std::this_thread::sleep_for(150ms);
    timespec before{}, after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    comm.reset();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    require(seconds < 0.08, "leaving took " + std::to_string(seconds) + " s of a core");
  });
}

}  // namespace
}  // namespace prun::test::failure_test
