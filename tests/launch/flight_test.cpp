// The flight record: what is written comes out, also from a process that was killed, and whatever bytes it
// holds.
#include "launch/flight.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "launch/hang_watch.hpp"

namespace prun::flight_test {
namespace {

TEST(Flight, WhatIsWrittenComesOut) {
  FlightRecorder recorder;
  recorder.begin_step(7);
  recorder.begin_call("forward");
  const int group = recorder.add_communicator("dp", std::vector<int>{0, 3, 1023});
  recorder.enter(group, "all_reduce");
  recorder.leave(group);
  recorder.enter(group, "all_gather");
  EXPECT_FALSE(recorder.snapshot().communicators.at(0).waiting);
  recorder.wait(group, true);
  const FlightSnapshot now = recorder.snapshot();
  EXPECT_EQ(now.step, 7);
  EXPECT_TRUE(now.in_step);
  ASSERT_EQ(now.communicators.size(), 1u);
  EXPECT_EQ(now.communicators[0].name, "dp");
  EXPECT_EQ(now.communicators[0].members, (std::vector<int>{0, 3, 1023}));
  EXPECT_EQ(now.communicators[0].entered, 2u);
  EXPECT_EQ(now.communicators[0].left, 1u);
  EXPECT_TRUE(now.communicators[0].waiting);
  ASSERT_EQ(now.events.size(), 5u);
  EXPECT_EQ(now.events[1].text, "forward");
  EXPECT_EQ(now.events[4].kind, FlightKind::collective_begin);
  EXPECT_EQ(now.events[4].sequence, 2u);
  EXPECT_EQ(describe_flight(now), "step 7, inside all_gather (number 2 of 'dp')");
  recorder.leave(group);
  recorder.end_call("forward");
  EXPECT_EQ(describe_flight(recorder.snapshot()), "step 7, after 'forward'");
  recorder.end_step();
  EXPECT_EQ(describe_flight(recorder.snapshot()), "after step 7");
}

TEST(Flight, BeginsBeforeTheFirstStep) {
  FlightRecorder recorder;
  EXPECT_EQ(describe_flight(recorder.snapshot()), "before the first step");
  recorder.begin_call("load");
  EXPECT_EQ(describe_flight(recorder.snapshot()), "before the first step, in 'load'");
}

TEST(Flight, ACallThatIsUnderWaySaysMoreThanOneThatHasEndedSince) {
  FlightRecorder recorder;
  recorder.begin_call("forward");
  for (int i = 0; i < 2; ++i) {
    recorder.begin_call("load");
    recorder.end_call("load");
  }
  EXPECT_EQ(describe_flight(recorder.snapshot()), "before the first step, in 'forward'");
  recorder.end_call("forward");
  EXPECT_EQ(describe_flight(recorder.snapshot()), "before the first step, after 'forward'");
}

TEST(Flight, KeepsTheLastEvents) {
  FlightRecorder recorder;
  for (int i = 0; i < 1000; ++i) recorder.note("event " + std::to_string(i) + std::string(100, 'x'));
  const FlightSnapshot now = recorder.snapshot();
  ASSERT_EQ(now.events.size(), flight_events);
  EXPECT_EQ(now.events.front().number, 1000 - flight_events);
  EXPECT_EQ(now.events.back().text.substr(0, 10), "event 999x");
  EXPECT_EQ(now.events.back().text.size(), flight_text);
}

TEST(Flight, MoreCommunicatorsThanItWatchesAreNoted) {
  FlightRecorder recorder;
  for (int i = 0; i < 20; ++i) {
    const int group = recorder.add_communicator("group " + std::to_string(i), std::vector<int>{0});
    recorder.enter(group, "barrier");
    recorder.leave(group);
  }
  const FlightSnapshot now = recorder.snapshot();
  EXPECT_EQ(now.communicators.size(), flight_communicators);
  EXPECT_EQ(now.events.back().group, no_group);
  int notes = 0;
  for (const FlightEvent& event : now.events) notes += event.text == "not watched: group 19";
  EXPECT_EQ(notes, 1);
}

// Each thread writes texts of one letter; a mixture would be a torn event.
TEST(Flight, ThreadsDoNotTearEachOthersEvents) {
  FlightRecorder recorder;
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c'})
    writers.emplace_back([&, letter] {
      const std::string text(flight_text, letter);
      while (!stop) recorder.note(text);
    });
  std::size_t seen = 0;
  bool torn = false;
  std::set<char> letters;  // until each of them has written
  for (int i = 0; i < 500 || letters.size() < writers.size(); ++i)
    for (const FlightEvent& event : recorder.snapshot().events) {
      ++seen;
      letters.insert(event.text.at(0));
      torn |= event.text != std::string(flight_text, event.text.at(0));
    }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_FALSE(torn);
  EXPECT_GT(seen, 500u);
}

TEST(Flight, IsReadAfterItsWriterWasKilled) {
  const FileDescriptor record = make_flight_record();
  const FlightView view(record.get());
  EXPECT_EQ(view.snapshot().step, -1);
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(record.get());
    recorder.begin_step(41);
    recorder.note("the last words");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const FlightSnapshot last = view.snapshot();
  EXPECT_EQ(last.step, 41);
  ASSERT_EQ(last.events.size(), 2u);
  EXPECT_EQ(last.events.back().text, "the last words");
}

TEST(Flight, ARankCannotPullTheMemoryAway) {
  const FileDescriptor record = make_flight_record();
  EXPECT_NE(::ftruncate(record.get(), 0), 0);
  EXPECT_NE(::ftruncate(record.get(), 1 << 20), 0);
  const FileDescriptor small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_THROW(FlightView view(small.get()), Error);
  EXPECT_THROW(FlightRecorder recorder(small.get()), Error);
}

// Every value may be anything: what comes out is bounded and printable.
void expect_harmless(const FlightSnapshot& snapshot) {
  EXPECT_LE(snapshot.events.size(), flight_events);
  EXPECT_LE(snapshot.communicators.size(), flight_communicators);
  const std::vector<WatchedRank> ranks = {
      {snapshot, false, nullptr}, {snapshot, false, stopped_text}, {{}, true, nullptr}};
  const auto hang = find_hang(ranks, flight_now_ns(), std::chrono::milliseconds(1));
  for (const std::string& text : {describe_flight(snapshot, flight_now_ns()), hang ? hang->reason : ""})
    for (const char c : text) ASSERT_GE(static_cast<unsigned char>(c), 0x20) << text;
}

TEST(Flight, AnyBytesAreHarmless) {
  std::mt19937_64 random(3);
  const FileDescriptor record = make_flight_record();
  FlightRecorder recorder(record.get());
  recorder.begin_step(1);
  recorder.enter(recorder.add_communicator("dp", std::vector<int>{0, 1, 2}), "barrier");
  struct stat info {};
  ASSERT_EQ(::fstat(record.get(), &info), 0);
  std::vector<std::byte> good(static_cast<std::size_t>(info.st_size));
  ASSERT_EQ(::pread(record.get(), good.data(), good.size(), 0), info.st_size);
  EXPECT_EQ(decode_flight(good).communicators.size(), 1u);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::byte> bytes = good;
    const bool everywhere = trial % 2 == 0;
    const std::size_t changes = everywhere ? bytes.size() : 1 + random() % 200;
    for (std::size_t i = 0; i < changes; ++i) {
      // The magic stays, else nothing further would be looked at.
      const std::size_t at = 8 + (everywhere ? i : random()) % (bytes.size() - 8);
      bytes[at] = static_cast<std::byte>(random() % 4 == 0 ? 1 : random());
    }
    expect_harmless(decode_flight(bytes));
    bytes.resize(random() % bytes.size());
    expect_harmless(decode_flight(bytes));
  }
}

// ------------------------------------------------------------------- who holds a collective up

constexpr std::int64_t second = 1'000'000'000;

FlightCommunicator communicator(const std::string& name, std::vector<int> members, std::uint64_t entered,
                                std::uint64_t left, std::int64_t entered_ns) {
  FlightCommunicator out;
  out.name = name;
  out.id = std::hash<std::string>()(name);
  out.members = std::move(members);
  out.entered = entered;
  out.left = left;
  out.entered_ns = entered_ns;
  out.operation = "all_reduce";
  return out;
}

WatchedRank rank_with(std::vector<FlightCommunicator> communicators) {
  WatchedRank rank;
  rank.flight.communicators = std::move(communicators);
  return rank;
}

TEST(HangWatch, NothingWithinTheLimit) {
  std::vector<WatchedRank> ranks = {rank_with({communicator("a", {0, 1}, 1, 0, 0)}), rank_with({})};
  EXPECT_FALSE(find_hang(ranks, 9 * second, std::chrono::seconds(10)));
  ranks[1].flight.saved_ns = 2 * second;  // a slow disk is no hang, unless it stands still
  EXPECT_FALSE(find_hang(ranks, 11 * second, std::chrono::seconds(10)));
  EXPECT_TRUE(find_hang(ranks, 13 * second, std::chrono::seconds(10)));
  ranks[1].flight.saved_ns = 0;
  EXPECT_TRUE(find_hang(ranks, 11 * second, std::chrono::seconds(10)));
}

// 0 waits for 1 in a; 1 waits for 3 in b; 3 computes.
TEST(HangWatch, FollowsTheChainToItsEnd) {
  const std::vector<WatchedRank> ranks = {
      rank_with({communicator("a", {0, 1}, 5, 4, 0)}),
      rank_with({communicator("a", {0, 1}, 4, 4, 0), communicator("b", {1, 3}, 2, 1, 3 * second)}),
      rank_with({}),
      rank_with({communicator("b", {1, 3}, 1, 1, 0)}),
  };
  const auto hang = find_hang(ranks, 11 * second, std::chrono::seconds(10));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 3);
  EXPECT_EQ(hang->reason,
            "has not reached all_reduce (number 2 of 'b'), in which rank 1 has waited for 8.0 s");
}

TEST(HangWatch, NamesACircle) {
  const std::vector<WatchedRank> ranks = {
      rank_with({communicator("a", {0, 1}, 1, 0, 0), communicator("b", {0, 1}, 0, 0, 0)}),
      rank_with({communicator("a", {0, 1}, 0, 0, 0), communicator("b", {0, 1}, 1, 0, 0)}),
  };
  const auto hang = find_hang(ranks, 11 * second, std::chrono::seconds(10));
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->reason.find("different orders"), std::string::npos) << hang->reason;
}

TEST(HangWatch, SaysWhenAllAreInside) {
  const FlightCommunicator same = communicator("a", {0, 1}, 1, 0, 0);
  const auto hang = find_hang(std::vector<WatchedRank>{rank_with({same}), rank_with({same})}, 11 * second,
                              std::chrono::seconds(10));
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->reason.find("which all members have entered"), std::string::npos) << hang->reason;
}

// 0 and 2 have done their part and wait.
TEST(HangWatch, NamesTheOneThatDoesNotWaitForTheOthers) {
  FlightCommunicator waits = communicator("a", {0, 1, 2}, 4, 3, 0);
  waits.waiting = true;
  const FlightCommunicator stuck = communicator("a", {0, 1, 2}, 4, 3, second);
  const FlightCommunicator gone_on = communicator("a", {0, 1, 2}, 9, 9, 5 * second);
  for (const auto& [other, reason] : {std::pair(stuck, "does not get on in its comm plugin, in all_reduce"),
                                      std::pair(gone_on, "has gone on without the others from all_reduce")}) {
    const std::vector<WatchedRank> ranks = {rank_with({waits}), rank_with({other}), rank_with({waits})};
    const auto hang = find_hang(ranks, 11 * second, std::chrono::seconds(10));
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->culprit, 1);
    EXPECT_NE(hang->reason.find(reason), std::string::npos) << hang->reason;
  }
}

TEST(HangWatch, NamesTheOneThatIsStoppedOnceNoOtherRuns) {
  const auto limit = std::chrono::seconds(10);
  const StoppedAlone::Clock::time_point start{};
  std::vector<WatchedRank> ranks(2);
  ranks[1].standstill = stopped_text;
  StoppedAlone watch;
  EXPECT_FALSE(watch.find(ranks, start, limit));
  EXPECT_FALSE(watch.find(ranks, start + 2 * limit, limit)) << "the other still runs";
  ranks[0].ended = true;
  EXPECT_FALSE(watch.find(ranks, start + 3 * limit, limit)) << "only from now on";
  const auto hang = watch.find(ranks, start + 4 * limit, limit);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 1);
  EXPECT_EQ(hang->reason, std::string(stopped_text) + ", and no other rank runs any more");
}

TEST(HangWatch, NamesTheFirstOfAllThatDoNotGetOn) {
  std::vector<WatchedRank> ranks = {rank_with({}), rank_with({communicator("a", {0, 1}, 3, 3, 0)}),
                                    rank_with({})};
  ranks[0].flight.stands_ns = 2 * second;
  ranks[1].flight.stands_ns = second;
  ranks[2].ended = true;
  EXPECT_FALSE(find_hang(ranks, 11 * second, std::chrono::seconds(10))) << "one has moved since";
  const auto hang = find_hang(ranks, 13 * second, std::chrono::seconds(10));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 1);
  EXPECT_EQ(hang->reason, "has not got on in a step for 12.0 s, nor has any other rank");
  ranks[0].flight.stands_ns = 0;
  EXPECT_FALSE(find_hang(ranks, 13 * second, std::chrono::seconds(10))) << "one is between steps";
  ranks[0].ended = ranks[1].ended = true;
  EXPECT_FALSE(find_hang(ranks, 13 * second, std::chrono::seconds(10))) << "none is left";
}

TEST(Flight, SaysSinceWhenNothingHasComeInAStep) {
  FlightRecorder flight;
  flight.note("loaded");
  EXPECT_EQ(flight.snapshot().stands_ns, 0);
  flight.begin_step(1);
  const std::int64_t begun = flight.snapshot().stands_ns;
  EXPECT_GT(begun, 0);
  flight.begin_call("forward");
  EXPECT_GE(flight.snapshot().stands_ns, begun);
  flight.end_step();
  EXPECT_GT(flight.snapshot().stands_ns, 0) << "the call is under way";
  flight.end_call("forward");
  EXPECT_EQ(flight.snapshot().stands_ns, 0);
}

TEST(HangWatch, NamesAMemberThatEnded) {
  std::vector<WatchedRank> ranks = {rank_with({communicator("a", {0, 1}, 1, 0, 0)}), rank_with({})};
  ranks[1].ended = true;
  const auto hang = find_hang(ranks, 11 * second, std::chrono::seconds(10));
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprit, 1);
  EXPECT_NE(hang->reason.find("ended before it reached"), std::string::npos) << hang->reason;
}

}  // namespace
}  // namespace prun::flight_test
