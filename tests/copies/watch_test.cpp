// Tests that a rank of these tests which stands still says so and ends.
#include "watch.hpp"

#include <gtest/gtest.h>
#include <signal.h>

namespace prun::test::watch_test {
namespace {

using namespace std::chrono_literals;

TEST(Watch, EndsAProcessThatStandsStillAndSaysWhere) {
  EXPECT_EXIT(
      {
        Watch watch("rank 3", 1s, [] { return std::string("lane 2 waits"); });
        watch.begins("sleeps");
        std::this_thread::sleep_for(20s);
      },
      testing::KilledBySignal(SIGTERM), "rank 3: sleeps and is not done after 1 s: lane 2 waits");
}

TEST(Watch, LetsAProcessGoOnThatDoesSomethingElse) {
  Watch watch("rank 3", 1s, [] { return std::string(); });
  for (int i = 0; i < 12; ++i) {
    watch.begins("sleeps");
    std::this_thread::sleep_for(100ms);
  }
  SUCCEED();
}

}  // namespace
}  // namespace prun::test::watch_test
