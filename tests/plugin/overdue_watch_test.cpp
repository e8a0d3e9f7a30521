// Who is told of calls that last, and how often.
#include "cli/open_recipe.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace prun {
namespace {

using namespace std::chrono_literals;

TEST(OverdueWatch, TellsACallThatLastsOnceAndNoneThatEnds) {
  constexpr auto limit = 100ms;
  std::atomic<int> told = 0, told_of_quick = 0, quick_that_lasted = 0;
  std::atomic<bool> right = true;
  {
    const OverdueWatch watch(limit, [&](const PluginAndWhere& call) {
      if (call.plugin == "test plugin 'quick'") {
        ++told_of_quick;
        return;
      }
      right = right && call.plugin == "test plugin 'slow'" && call.where == "in slow()";
      ++told;
    });
    // On a machine that has other things to do one of them may last as well.
    std::jthread short_ones([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto begin = std::chrono::steady_clock::now();
        {
          const InPlugin here("test plugin 'quick'", "in quick()");
          std::this_thread::sleep_for(1ms);
        }
        quick_that_lasted += std::chrono::steady_clock::now() - begin >= limit;
      }
    });
    const InPlugin here("test plugin 'slow'", "in slow()");
    while (told == 0) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(3 * limit);
  }
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(right);
  EXPECT_LE(told_of_quick, quick_that_lasted);
}

// Found and named by its own time, however often it is seen in a call that is within it.
TEST(OverdueWatch, TellsACallOnceThatMakesShortOnes) {
  std::atomic<int> told = 0;
  const OverdueWatch watch(200ms, [&](const PluginAndWhere& call) {
    if (call.plugin == "test plugin 'outer'" && call.where == "in outer()") ++told;
  });
  const InPlugin outer("test plugin 'outer'", "in outer()");
  const auto make_short_calls = [](int count) {
    for (int i = 0; i < count; ++i) {
      {
        const InPlugin inner("test plugin 'inner'", "in inner()");
        std::this_thread::sleep_for(40ms);
      }
      std::this_thread::sleep_for(25ms);
    }
  };
  for (int i = 0; i < 200 && told == 0; ++i) make_short_calls(1);
  make_short_calls(8);
  EXPECT_EQ(told, 1);
}

TEST(OverdueWatch, ACallGoesOnBehindOneWithinIt) {
  const InPlugin outer("test plugin 'a'", "in outer()");
  const auto number = [] {
    std::uint64_t largest = 0;
    for (const std::uint64_t call : calls_into_plugins()) largest = std::max(largest, call);
    return largest;
  };
  const std::uint64_t before = number();
  EXPECT_NE(before, 0u);
  {
    const InPlugin inner("test plugin 'b'", "in inner()");
    EXPECT_GT(number(), before);
  }
  EXPECT_EQ(number(), before);
}

}  // namespace
}  // namespace prun
