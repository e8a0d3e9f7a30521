// Hangs found in what ranks tell about themselves, each by its own clock.
#include "launch/hang_watch.hpp"

#include <gtest/gtest.h>

namespace prun::remote_watch_test {
namespace {

constexpr std::int64_t second = 1'000'000'000;

FlightCommunicator communicator(std::uint64_t entered, std::uint64_t left, std::int64_t age_ns) {
  FlightCommunicator out;
  out.name = "dp";
  out.id = 7;
  out.members = {0, 1, 2};
  out.entered = entered;
  out.left = left;
  out.entered_ns = age_ns;
  out.operation = "all_reduce";
  return out;
}

// Through the wire, as it comes from another host.
FlightReport told(const FlightCommunicator& communicator, const std::string& doing) {
  FlightReport report;
  report.limit_ms = 10'000;
  report.doing = doing;
  report.communicators = {communicator};
  return decode_flight_report(encode(report)).value();
}

TEST(RemoteWatch, AReportIsReadAsItWasWritten) {
  FlightReport report = told(communicator(5, 4, 3 * second), "step 7, in 'load'");
  EXPECT_EQ(report.limit_ms, 10'000u);
  EXPECT_EQ(report.doing, "step 7, in 'load'");
  ASSERT_EQ(report.communicators.size(), 1u);
  EXPECT_EQ(report.communicators[0].members, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(report.communicators[0].entered_ns, 3 * second);
  EXPECT_TRUE(report.communicators[0].inside());
  EXPECT_EQ(report.saved_ns, -1);
  report.saved_ns = 2 * second;
  EXPECT_EQ(decode_flight_report(encode(report)).value().saved_ns, 2 * second);
  // Whom a rank does not wait for need not be known.
  EXPECT_TRUE(told(communicator(5, 5, 0), "").communicators[0].members.empty());
  const std::string bytes = encode(report);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_flight_report(std::string_view(bytes).substr(0, size))) << size;
  report.communicators[0].members = {flight_ranks};
  EXPECT_FALSE(decode_flight_report(encode(report)));
}

TEST(RemoteWatch, NothingIsFoundBeforeAnybodyTells) {
  RemoteWatch watch(3);
  EXPECT_FALSE(watch.find(1'000'000 * second));
}

TEST(RemoteWatch, ARankThatDoesNotReachACollectiveIsNamed) {
  RemoteWatch watch(3);
  const std::int64_t now = 5000 * second;
  for (const int rank : {0, 2}) watch.take(rank, told(communicator(5, 4, 9 * second), "step 7"), now);
  watch.take(1, told(communicator(4, 4, 0), "step 7, in 'load'"), now);
  EXPECT_FALSE(watch.find(now + second));
  for (const int rank : {0, 2})
    watch.take(rank, told(communicator(5, 4, 11 * second), "step 7"), now + 2 * second);
  watch.take(1, told(communicator(4, 4, 0), "step 7, in 'load'"), now + 2 * second);
  const std::optional<Hang> hang = watch.find(now + 2 * second);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 1);
  EXPECT_EQ(hang->reason,
            "has not reached all_reduce (number 5 of 'dp'), in which rank 0 has waited for 11.0 s; it was in "
            "step 7, in 'load'");
}

TEST(RemoteWatch, RanksThatAllStandStillInAStepAreFound) {
  RemoteWatch watch(2);
  const std::int64_t now = 5000 * second;
  FlightReport report = told(communicator(4, 4, 0), "step 7, in 'forward'");
  report.stands_ns = 12 * second;
  watch.take(0, decode_flight_report(encode(report)).value(), now);
  EXPECT_FALSE(watch.find(now)) << "the other has told nothing";
  watch.take(1, decode_flight_report(encode(report)).value(), now);
  const std::optional<Hang> hang = watch.find(now + second);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->reason,
            "has not got on in a step for 13.0 s, nor has any other rank; it was in step 7, in 'forward'");
}

// Without a limit as well: the time counts from the first report of a rank that was asked to end.
TEST(RemoteWatch, RanksThatDoNotComeToTheStopTheyWereAskedForAreFound) {
  for (const std::uint32_t limit_ms : {0u, 600'000u}) {
    RemoteWatch watch(2, std::chrono::seconds(30));
    const std::int64_t begin = 5000 * second;
    const auto tell = [&](int rank, FlightReport report, std::int64_t stood, bool stops) {
      report.limit_ms = limit_ms;
      report.stands_ns = stood * second;
      report.stops = stops;
      watch.take(rank, decode_flight_report(encode(report)).value(), begin + stood * second);
    };
    const auto find_after = [&](std::int64_t stood, bool stops) {
      tell(0, told(communicator(5, 4, stood * second), "step 7, in 'reduce'"), stood, stops);
      tell(1, told(communicator(4, 4, 0), "step 7, in 'load'"), stood, false);
      return watch.find(begin + stood * second);
    };
    EXPECT_FALSE(find_after(50, false)) << "nobody was asked to end";
    EXPECT_FALSE(find_after(60, true));
    EXPECT_FALSE(find_after(80, true));
    const std::optional<Hang> hang = find_after(100, true);
    ASSERT_TRUE(hang) << limit_ms;
    EXPECT_EQ(hang->culprit, 1);
    EXPECT_EQ(hang->reason.find("has not reached all_reduce (number 5 of 'dp'), in which rank 0 has waited"),
              0u)
        << hang->reason;
  }
}

// As long as one rank gets on, the others wait for it.
TEST(RemoteWatch, AStopIsWaitedForWhileARankGetsOn) {
  RemoteWatch watch(2, std::chrono::seconds(30));
  FlightReport waits = told(communicator(5, 4, 90 * second), "step 7"),
               works = told(communicator(4, 4, 0), "step 7");
  waits.limit_ms = works.limit_ms = 600'000;
  waits.stands_ns = 90 * second;
  works.stands_ns = second;
  waits.stops = true;
  for (const std::int64_t now : {5000 * second, 5060 * second}) {
    watch.take(0, waits, now);
    watch.take(1, works, now);
    EXPECT_FALSE(watch.find(now)) << now;
  }
}

TEST(RemoteWatch, ASilentRankIsNamedAlsoInsideOfTheCollective) {
  RemoteWatch watch(3);
  const std::int64_t now = 5000 * second;
  for (const int rank : {0, 1, 2}) watch.take(rank, told(communicator(5, 4, 0), "step 7"), now);
  for (const int rank : {0, 1})
    watch.take(rank, told(communicator(5, 4, 12 * second), "step 7"), now + 12 * second);
  const std::optional<Hang> hang = watch.find(now + 12 * second);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 2);
  EXPECT_EQ(hang->reason.find("gives no sign of life ("), 0u) << hang->reason;
  EXPECT_NE(hang->reason.find(") and holds up all_reduce (number 5 of 'dp'), in which rank 0 has waited"),
            std::string::npos)
      << hang->reason;
}

TEST(RemoteWatch, ARankThatEndedIsNamed) {
  RemoteWatch watch(3);
  const std::int64_t now = 5000 * second;
  for (const int rank : {0, 1}) watch.take(rank, told(communicator(5, 4, 12 * second), "step 7"), now);
  watch.ended(2);
  const std::optional<Hang> hang = watch.find(now);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 2);
  EXPECT_EQ(hang->reason.find("ended before it reached all_reduce"), 0u) << hang->reason;
}

}  // namespace
}  // namespace prun::remote_watch_test
