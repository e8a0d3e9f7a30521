// How many commands a queue of the device cuda has given that are not done: never more than the driver takes.
#include "cuda/room.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace prun::cuda {
namespace {

// A stream that does what it has been told to say whenever somebody waits for room, and counts the waits.
class RoomTest : public testing::Test {
 protected:
  void take(std::int64_t commands) {
    room_.take(
        commands, [this](std::uint64_t given) { marks_.push_back(given); }, [this] { return done_; },
        [this] {
          ++waits_;
          ASSERT_FALSE(marks_.empty()) << "it waits for nothing";
          ASSERT_LT(done_, marks_.back()) << "it waits for ever";
          done_ = marks_.back();
        });
    given_ += static_cast<std::uint64_t>(commands);
    EXPECT_LE(given_ - done_, static_cast<std::uint64_t>(Room::most));
  }

  Room room_;
  std::vector<std::uint64_t> marks_;
  std::uint64_t given_ = 0, done_ = 0;
  int waits_ = 0;
};

TEST_F(RoomTest, NobodyWaitsWhileThereIsRoom) {
  for (std::int64_t i = 0; i < Room::most; ++i) take(1);
  EXPECT_EQ(waits_, 0);
  EXPECT_EQ(marks_.size(), static_cast<std::size_t>(Room::most / Room::mark_every - 1));
}

TEST_F(RoomTest, WhoeverFindsNoneWaitsForWhatTheStreamWillSay) {
  for (int i = 0; i < 100'000; ++i) take(1 + i % 300);
  EXPECT_GT(waits_, 0);
}

TEST_F(RoomTest, MoreThanThereEverIsRoomForGoesAlone) {
  take(1);
  room_.take(
      10 * Room::most, [this](std::uint64_t given) { marks_.push_back(given); }, [this] { return done_; },
      [] { FAIL() << "there is nothing to wait for"; });
}

}  // namespace
}  // namespace prun::cuda
