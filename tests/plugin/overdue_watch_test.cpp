// Who is told of calls that last, and how often.
#include "plugin/overdue_watch.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace prun {
namespace {

using namespace std::chrono_literals;

TEST(OverdueWatch, TellsACallThatLastsOnceAndNoneThatEnds) {
  std::atomic<int> told = 0;
  std::atomic<bool> right = true;
  const OverdueWatch watch(100ms, [&](const PluginAndWhere& call) {
    right = right && call.plugin == "test plugin 'slow'" && call.where == "in slow()";
    ++told;
  });
  std::jthread short_ones([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const InPlugin here("test plugin 'quick'", "in quick()");
      std::this_thread::sleep_for(1ms);
    }
  });
  {
    const InPlugin here("test plugin 'slow'", "in slow()");
    for (int i = 0; i < 1000 && told == 0; ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(right);
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
