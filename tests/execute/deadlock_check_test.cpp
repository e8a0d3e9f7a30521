// Whether a layout ends on queues of some depth and with some exchanges under way at a time: what is said in
// advance is what happens. PRUN_SEED repeats a drawing; with PRUN_LONG 300 are drawn instead of 36.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <random>

#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::deadlock_check_test {
namespace {

using Clock = std::chrono::steady_clock;

// Tells that something happens, on any rank.
class Sign final : public Probe {
 public:
  explicit Sign(std::atomic<std::int64_t>& happened) : happened_(happened) {}
  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t, const Call&, std::int64_t, double) noexcept override { ++happened_; }
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override { ++happened_; }

 private:
  std::atomic<std::int64_t>& happened_;
};

// Trains two steps on all ranks. Aborts them where nothing happens for as long as `patience`.
class Attempt {
 public:
  bool ends(const Recipe& recipe, Clock::duration patience) {
    const Probes probes = [this](const Assembly&, Communicators*) { return std::vector<Probe*>{&sign_}; };
    std::stop_source stop;
    std::future<void> run = std::async(std::launch::async, [&] {
      run_local_ranks(
          recipe, plugins().places(), [](Trainer& trainer) { train_steps(trainer, 2); }, probes,
          stop.get_token());
    });
    std::int64_t seen = -1;
    Clock::time_point since = Clock::now();
    while (run.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
      if (const std::int64_t now = happened_; now != seen) {
        seen = now;
        since = Clock::now();
      }
      if (Clock::now() - since > patience) stop.request_stop();
    }
    try {
      run.get();
      return true;
    } catch (const Error&) {
      if (!stop.stop_requested()) throw;
      return false;
    }
  }

 private:
  std::atomic<std::int64_t> happened_ = 0;
  Sign sign_{happened_};
};

struct Tally {
  unsigned tried = 0, ended = 0;
};

void try_one(unsigned seed, Tally& tally) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int> list) {
    return std::to_string(list.begin()[random() % list.size()]);
  };
  const std::string text = drawn_recipe(seed, Scale::small),
                    device = "depth = " + pick({1, 1, 1, 1, 2, 2, 2, 3, 4, 16}) + "\n",
                    comm = "resident = " + pick({0, 0, 1, 1, 2}) + "\n";
  const auto parse = [&](const std::string& said) {
    return Recipe::parse(drawn_on_async(text, device + said, comm + said), "drawn.toml", {},
                         plugins().catalog());
  };
  std::string refusal;
  const Recipe silent = parse("silent = true\n");
  if (mesh_of(silent).world() == 1) return;
  try {
    const Assembly allowed(silent, plugins());
  } catch (const Error& error) {
    EXPECT_TRUE(is_permitted_refusal(error.what())) << error.what();
    return;
  }
  try {
    const Assembly assembly(parse(""), plugins());
  } catch (const Error& error) {
    refusal = error.what();
    EXPECT_NE(refusal.find("stands still"), std::string::npos) << refusal;
  }
  // Where it is said to end, a slow machine is not to be taken for one that stands still.
  const bool ends = Attempt().ends(
      silent, refusal.empty() ? std::chrono::milliseconds(60000) : std::chrono::milliseconds(700));
  EXPECT_EQ(ends, refusal.empty()) << "PRUN_SEED=" << seed << " " << device << comm << text << refusal;
  ++tally.tried;
  tally.ended += ends;
}

TEST(DeadlockCheck, WhatIsSaidInAdvanceIsWhatHappens) {
  const unsigned first = first_seed(), wanted = std::getenv("PRUN_LONG") ? 300 : 36;
  Tally tally;
  for (unsigned seed = first; tally.tried < wanted && seed < first + 6 * wanted; ++seed) try_one(seed, tally);
  std::printf("seed %u: %u of %u layouts ended, the others stood still\n", first, tally.ended, tally.tried);
  EXPECT_EQ(tally.tried, wanted);
  EXPECT_GT(tally.ended, wanted / 6);
  EXPECT_GT(tally.tried - tally.ended, wanted / 12);
}

}  // namespace
}  // namespace prun::test::deadlock_check_test
