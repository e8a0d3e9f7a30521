// How members say by what they reach each other.
#include "reach.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "ranks.hpp"

namespace prun::test::reach_test {
namespace {

using ucx::Reach;
using ucx::Where;

std::string line(std::initializer_list<std::pair<Where, std::set<std::string>>> members) {
  Reach reach;
  for (const auto& [where, lanes] : members) reach.add(where, lanes);
  return reach.line("dp[0..1]");
}

TEST(Reach, TransportsHaveWordsThatPeopleKnow) {
  EXPECT_EQ(line({{Where::here, {"sysv/memory", "cma/memory"}}}), "good|dp[0..1]|shared memory (cma, sysv)|");
  EXPECT_EQ(line({{Where::elsewhere, {"tcp/eth0"}}}), "good|dp[0..1]|tcp (eth0)|");
  EXPECT_EQ(line({{Where::elsewhere, {"rc_mlx5/mlx5_0:1"}}, {Where::here, {"posix/memory"}}}),
            "good|dp[0..1]|rdma (mlx5_0:1) and shared memory (posix)|");
}

TEST(Reach, WhatUcxDoesNotTellIsNotBlamed) {
  EXPECT_EQ(line({{Where::here, {}}}), "good|dp[0..1]|transports that UCX does not tell|");
}

TEST(Reach, ANetworkBetweenRanksOfAHostIsSlow) {
  EXPECT_TRUE(line({{Where::here, {"tcp/lo"}}})
                  .starts_with("slow|dp[0..1]|tcp (lo), between ranks of one host|let them share memory: one "
                               "namespace of IPC"));
  EXPECT_NE(line({{Where::unseen, {"tcp/eth0"}}}).find("--pid=host --ipc=host"), std::string::npos);
}

// Each rank says the same of the group that it is in.
void expect_said(const std::string& begin, const PluginOptions& options, const char* tls = nullptr) {
  expect_ranks(2, [&](const Rank& rank) {
    if (tls) ::setenv("UCX_TLS", tls, 1);
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, options);
    const std::string said = comm.examine();
    require(said.starts_with(begin), said);
  });
}

TEST(Reach, RanksOfAHostFindItsMemory) { expect_said("good|test.group|shared memory (", {}); }

TEST(Reach, WhoAsksForTheNetworkGetsItUnblamed) {
  expect_said("good|test.group|tcp (", {.shared_memory = false});
}

TEST(Reach, WithoutSharedMemoryItIsSaid) { expect_said("slow|test.group|tcp (", {}, "tcp,self"); }

// Messages in shared memory wake nobody in another network: each sleeper would look after 100 ms.
TEST(Reach, RanksInSeveralNetworksOfAHostDoNotSleepLong) {
  static constexpr int rounds = 40;
  const std::vector<Outcome> outcomes = run_ranks(2, [](const Rank& rank) {
    if (rank.number == 1 && ::unshare(CLONE_NEWNET) != 0) throw std::runtime_error("no network");
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    require(
        comm.examine().find("since ranks are in several networks of one host|let them have one network") !=
            std::string::npos,
        comm.examine());
    float one = 1;
    const CommOp sum{CommKind::all_reduce, Reduction::sum, DType::f32, -1, &one, &one, 1};
    comm.run(sum);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      if (rank.number == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      comm.run(sum);
    }
    require(std::chrono::steady_clock::now() - begin < rounds * std::chrono::milliseconds(50), "slept long");
  });
  for (const Outcome& outcome : outcomes) {
    if (outcomes[1].message == "no network") GTEST_SKIP() << "needs root and network namespaces";
    EXPECT_EQ(outcome.message, "");
  }
}

}  // namespace
}  // namespace prun::test::reach_test
