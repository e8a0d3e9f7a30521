// Exposed communication of real steps: what a rank waits for another that comes late, as each of the two
// kinds of devices measures it, in the steps that the recipe asks for and in no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/assembly_fixture.hpp"
#include "train/local_ranks.hpp"

namespace prun::test {
namespace {

constexpr std::chrono::milliseconds late(300);
constexpr double most_of_it = 0.2;
constexpr int steps = 4;

using Measured = std::vector<std::optional<double>>;

// Of each rank, where the last one comes late to every step.
std::map<std::int64_t, Measured> train(const Recipe& recipe) {
  std::map<std::int64_t, Measured> measured;
  std::mutex mutex;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    Measured own;
    const Assembly& assembly = trainer.assembly();
    for (int step = 0; step < steps; ++step) {
      if (assembly.rank() + 1 == assembly.mesh().world()) std::this_thread::sleep_for(late);
      own.push_back(trainer.step().exposed_communication);
    }
    const std::scoped_lock lock(mutex);
    measured[assembly.rank()] = own;
  });
  return measured;
}

void expect_waits_of_the_first(const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"batch.micro=2", "run.measure_comm=2"};
  all.insert(all.end(), sets.begin(), sets.end());
  const auto measured = train(tiny_recipe(all, data_parallel(2)));
  for (const auto& [rank, own] : measured) {
    ASSERT_EQ(own.size(), std::size_t{steps});
    for (const int step : {0, 2}) EXPECT_FALSE(own[step]) << rank;
    for (const int step : {1, 3}) {
      ASSERT_TRUE(own[step]) << rank;
      EXPECT_GE(*own[step], rank == 0 ? most_of_it : 0) << rank;
      EXPECT_LT(*own[step], 60) << rank;
    }
    // The machine may stand still for a while, once.
    if (rank > 0) {
      EXPECT_LT(std::min(*own[1], *own[3]), most_of_it) << rank;
    }
  }
  EXPECT_EQ(measured.size(), 2u);
}

TEST(Exposed, ABlockingDeviceMeasuresWhatAPeerHoldsUp) { expect_waits_of_the_first({}); }

TEST(Exposed, AnAsynchronousDeviceMeasuresItOnTheDevice) {
  expect_waits_of_the_first({"device.plugin=cpu-async", "comm.default=meet-async"});
}

TEST(Exposed, ExchangesOverTheHostHoldUpADeviceAsWell) {
  expect_waits_of_the_first({"device.plugin=cpu-async"});
}

TEST(Exposed, NothingIsMeasuredOfOneRankOrWhereNobodyAsks) {
  for (const std::string& mesh : {std::string(), data_parallel(2)})
    for (const auto& [rank, own] : train(tiny_recipe(
             {"batch.micro=2", mesh.empty() ? "run.measure_comm=1" : "run.measure_comm=0"}, mesh)))
      for (const std::optional<double>& one : own) EXPECT_FALSE(one) << rank;
}

}  // namespace
}  // namespace prun::test
