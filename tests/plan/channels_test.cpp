// Who meets whom, and when an exchange is over.
#include "plan/proof/lanes.hpp"

#include <gtest/gtest.h>

#include "support/plan_builder.hpp"

namespace prun::test::channels_test {
namespace {

using Kind = CommKind;

// Two ranks with a queue each, who can be told apart, as each has a plan of its own.
struct Pair {
  Pair() {
    for (PlanBuilder* builder : {&first, &second}) builder->queue("between", false, 0);
  }

  PlanBuilder first, second;
};

struct Meetings {
  explicit Meetings(const Pair& pair)
      : ranks{pair.first.rank(3, {both}), pair.second.rank(5, {both})}, classes(ranks), lanes(classes, 1) {}

  // When the exchange is over for the lane, which is there at `now`; -1: it is not yet.
  double meet(std::size_t lane, double now, double seconds = 10) {
    const PlannedStep& step = lanes.rank_of(lanes[lane]).plan->steps(lanes[lane].call())[0];
    return channels.meet(lane, *step.exchange, now, [&](const Channels::Participants&) { return seconds; })
               ? now
               : -1;
  }

  const Group both = group({3, 5});
  const std::vector<SimulatedRank> ranks;
  const RankClasses classes;
  Lanes lanes;
  Channels channels{classes, lanes};
};

TEST(Channels, AnExchangeBeginsWhenTheLastOneIsThere) {
  Pair pair;
  pair.first.exchange(0, Kind::all_reduce, 4);
  pair.second.exchange(0, Kind::all_reduce, 4);
  Meetings meetings(pair);
  EXPECT_EQ(meetings.meet(1, 2), -1);
  EXPECT_TRUE(meetings.channels.waits(1));
  EXPECT_EQ(meetings.channels.missing_at(1), std::vector<int>{3});
  EXPECT_EQ(meetings.meet(0, 7), 17);
  EXPECT_FALSE(meetings.channels.waits(0));
  EXPECT_EQ(meetings.lanes.next_awake(), 1u);
  EXPECT_EQ(meetings.meet(1, 2), 17);
  EXPECT_FALSE(meetings.channels.waits(1));
}

// What one sends the other receives, each in its order; the way back is another.
TEST(Channels, ASendMeetsTheReceiveOfItsNumber) {
  Pair pair;
  for (const std::int64_t bytes : {1, 2}) {
    pair.first.exchange(0, Kind::send, bytes, {}, 1);
    pair.second.exchange(0, Kind::recv, bytes, {}, 0);
  }
  Meetings meetings(pair);
  for (const double now : {1.0, 20.0}) {
    EXPECT_EQ(meetings.meet(0, now), -1);
    EXPECT_EQ(meetings.meet(1, now), now + 10);
    EXPECT_EQ(meetings.meet(0, now), now + 10);
    for (const std::size_t lane : {0, 1}) meetings.lanes[lane].end_call();
  }
}

TEST(Channels, WhoMeetDoTheSame) {
  for (const auto& [kind, bytes] : {std::pair{Kind::all_reduce, 5}, {Kind::all_gather, 4}}) {
    Pair pair;
    pair.first.exchange(0, Kind::all_reduce, 4);
    pair.second.exchange(0, kind, bytes);
    Meetings meetings(pair);
    meetings.meet(0, 0);
    try {
      meetings.meet(1, 0);
      FAIL() << "they met";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::comm_failed);
      const std::string text = error.what();
      EXPECT_NE(text.find("do not fit together: rank 3, queue between, call 0"), std::string::npos) << text;
      EXPECT_NE(text.find("meets rank 5"), std::string::npos) << text;
    }
  }
}

// Ranks that are alike stand for each other: one of them is all of them.
TEST(Channels, WhoIsAlikeMeetsAtOnce) {
  PlanBuilder builder;
  builder.exchange(builder.queue("between", false, 0), Kind::all_reduce, 4);
  const Group both = group({0, 1});
  const std::vector<SimulatedRank> ranks = {builder.rank(0, {both}), builder.rank(1, {both})};
  const RankClasses classes(ranks);
  Lanes lanes(classes, 1);
  Channels channels(classes, lanes);
  double now = 3;
  EXPECT_TRUE(channels.meet(0, *builder.plan().steps(*lanes[0].calls[0])[0].exchange, now,
                            [](const Channels::Participants& participants) {
                              EXPECT_EQ(participants.members, 2);
                              EXPECT_EQ(participants.classes, 1u);
                              return 1.0;
                            }));
  EXPECT_EQ(now, 4);
}

}  // namespace
}  // namespace prun::test::channels_test
