// Exposed communication of real steps: what a rank waits for another that comes late, as each of the two
// kinds of devices measures it, in the steps that the recipe asks for and in no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::exposed_test {
namespace {

constexpr std::chrono::milliseconds late(1000);
constexpr double half_of_it = 0.5;
constexpr int steps = 6, measured_every = 2;

using Measured = std::vector<std::optional<double>>;

bool is_measured(int step) { return (step + 1) % measured_every == 0; }

// Of each rank, where the last one comes late to every step that is measured.
std::map<std::int64_t, Measured> train(const Recipe& recipe) {
  std::map<std::int64_t, Measured> measured;
  std::mutex mutex;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    Measured own;
    const Assembly& assembly = trainer.assembly();
    for (int step = 0; step < steps; ++step) {
      const bool is_last = assembly.rank() + 1 == assembly.mesh().world();
      if (is_last && is_measured(step)) std::this_thread::sleep_for(late);
      own.push_back(trainer.step().exposed_communication);
    }
    const std::scoped_lock lock(mutex);
    measured[assembly.rank()] = own;
  });
  return measured;
}

void expect_waits_of_the_first(const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"batch.micro=2", "run.measure_comm=" + std::to_string(measured_every)};
  all.insert(all.end(), sets.begin(), sets.end());
  const auto measured = train(tiny_recipe(all, data_parallel(2)));
  for (const auto& [rank, own] : measured) {
    ASSERT_EQ(own.size(), std::size_t{steps});
    std::vector<double> waits;
    for (int step = 0; step < steps; ++step) {
      const std::optional<double>& one = own[static_cast<std::size_t>(step)];
      ASSERT_EQ(one.has_value(), is_measured(step)) << rank;
      if (one) waits.push_back(*one);
    }
    // The machine may stand still for a while, now and then, while either rank waits.
    const auto [least, most] = std::minmax_element(waits.begin(), waits.end());
    EXPECT_GE(*least, 0) << rank;
    if (rank == 0) {
      EXPECT_GT(*most, half_of_it);
    } else {
      EXPECT_LT(*least, half_of_it) << rank;
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

// Sums what a rank's computing waits for queues that communicate.
class WaitsForOthers final : public Probe {
 public:
  explicit WaitsForOthers(const Plan& plan) : plan_(plan) {}
  void begin_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void begin_wait(std::int32_t queue, const Call&, const Wait& wait, std::int64_t,
                  double at) noexcept override {
    if (counts(queue, wait)) seconds_ -= at;
  }
  void end_wait(std::int32_t queue, const Call&, const Wait& wait, std::int64_t,
                double at) noexcept override {
    if (counts(queue, wait)) seconds_ += at;
  }
  double seconds() const { return seconds_; }

 private:
  // All of these waits are of one queue, and so of one thread.
  bool counts(std::int32_t queue, const Wait& wait) const {
    return plan_.queues[queue].workers && plan_.queues[queue].device == 0 &&
           plan_.queues[wait.queue].communicates();
  }

  const Plan& plan_;
  double seconds_ = 0;
};

// Parameters come from a drive before ranks gather them: the drive is no communication.
TEST(Exposed, WhatCommunicationWaitsForIsNotMeasured) {
  const Recipe recipe = tiny_recipe({"batch.micro=2", "run.measure_comm=1"},
                                    data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n" +
                                        offloaded_to_drives(temporary_folder(), true, false, false, "nvme"));
  std::mutex mutex;
  std::map<std::int64_t, std::unique_ptr<WaitsForOthers>> waits;
  std::map<std::int64_t, double> exposed;
  run_local_ranks(
      recipe, plugins().places(),
      [&](Trainer& trainer) {
        double own = 0;
        for (int step = 0; step < steps; ++step) own += trainer.step().exposed_communication.value();
        const std::scoped_lock lock(mutex);
        exposed[trainer.assembly().rank()] = own;
      },
      [&](const Assembly& assembly, const Communicators*) {
        const std::scoped_lock lock(mutex);
        auto& own = waits[assembly.rank()] = std::make_unique<WaitsForOthers>(assembly.plan());
        return std::vector<Probe*>{own.get()};
      });
  ASSERT_EQ(exposed.size(), 2u);
  for (const auto& [rank, seconds] : exposed) {
    EXPECT_GT(seconds, 0) << rank;
    EXPECT_LT(seconds, 0.999 * waits.at(rank)->seconds()) << rank;
  }
}

TEST(Exposed, NothingIsMeasuredOfOneRankOrWhereNobodyAsks) {
  for (const std::string& mesh : {std::string(), data_parallel(2)})
    for (const auto& [rank, own] : train(tiny_recipe(
             {"batch.micro=2", mesh.empty() ? "run.measure_comm=1" : "run.measure_comm=0"}, mesh)))
      for (const std::optional<double>& one : own) EXPECT_FALSE(one) << rank;
}

}  // namespace
}  // namespace prun::test::exposed_test
