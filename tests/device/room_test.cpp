// How much the device cuda gives the driver at a time.
#include "room.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace {

using prun::cuda::Room;

// A stream whose commands are done when somebody waits for room, the oldest first.
struct Stream {
  Room room;
  std::deque<std::int64_t> given;  // commands of each; a mark is one of none
  std::deque<std::uint64_t> marks;
  std::uint64_t done = 0;
  std::int64_t under_way = 0, most = 0;
  int pauses = 0;

  void give(std::int64_t commands) {
    room.take(
        commands,
        [&](std::uint64_t count) {
          given.push_back(0);
          marks.push_back(count);
        },
        [&] { return done; }, [&] { do_oldest(); });
    given.push_back(commands);
    under_way += commands;
    most = std::max(most, under_way);
  }
  void do_oldest() {
    ++pauses;
    ASSERT_FALSE(given.empty()) << "nothing would ever make room";
    if (given.front() == 0) {
      done = marks.front();
      marks.pop_front();
    }
    under_way -= given.front();
    given.pop_front();
  }
};

TEST(Room, HoldsWhoGivesMoreThanTheDriverTakes) {
  for (const std::int64_t commands : {1, 3, 8, 63, 64, 65, 200, 224}) {
    Stream stream;
    for (int i = 0; i < 5000; ++i) stream.give(commands);
    EXPECT_LE(stream.most, Room::most) << commands;
    EXPECT_GT(stream.most, Room::most - commands) << commands;
    EXPECT_GT(stream.pauses, 0) << commands;
  }
}

// More than is counted: one is given while one runs.
TEST(Room, LargePiecesOfWorkFollowEachOther) {
  Stream stream;
  for (int i = 0; i < 100; ++i) stream.give(400);
  EXPECT_EQ(stream.most, 800);
}

}  // namespace
