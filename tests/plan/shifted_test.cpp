// Who sends what to whom where parts of a sequence shift: each part once, to the rank that needs it.
#include "plan/bound_calls.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <utility>
#include <vector>

#include "estimate/costs.hpp"

namespace prun::test::shifted_test {
namespace {

PlannedExchange shift(std::int64_t distance, std::int64_t chunks = 0, std::int64_t samples = 1) {
  PlannedExchange exchange;
  exchange.kind = CommKind::send;
  exchange.distance = distance;
  exchange.chunks = chunks;
  exchange.pieces = samples * (chunks > 0 ? 2 : 1);
  exchange.count = 6 * exchange.pieces;
  return exchange;
}

struct Ends {
  CommKind kind;
  std::int32_t peer;
  std::int64_t piece;
  friend bool operator==(const Ends&, const Ends&) = default;
};

std::vector<Ends> of(const PlannedExchange& exchange, std::int64_t place, std::int64_t members) {
  std::vector<Ends> all;
  for (const ShiftedPiece& one : shifted_pieces(exchange, place, members))
    all.push_back({one.kind, one.peer, one.piece});
  return all;
}

constexpr CommKind send = CommKind::send, recv = CommKind::recv;

TEST(Shifted, PartsInOrderGoToTheNextAndNoneBeyondTheEnd) {
  EXPECT_EQ(of(shift(1), 0, 3), (std::vector<Ends>{{send, 1, 0}}));
  EXPECT_EQ(of(shift(1), 1, 3), (std::vector<Ends>{{recv, 0, 0}, {send, 2, 0}}));
  EXPECT_EQ(of(shift(1), 2, 3), (std::vector<Ends>{{recv, 1, 0}}));
  EXPECT_EQ(of(shift(-2), 0, 3), (std::vector<Ends>{{recv, 2, 0}}));
  EXPECT_TRUE(of(shift(-2), 1, 3).empty());
}

// Chunks 0 to 5 lie 0 5, 1 4, 2 3: the last rank has both in the middle, which it keeps.
TEST(Shifted, TwoChunksOfARankGoToTwoNeighbours) {
  EXPECT_EQ(of(shift(1, 6), 0, 3), (std::vector<Ends>{{send, 1, 0}, {recv, 1, 1}}));
  EXPECT_EQ(of(shift(1, 6), 1, 3),
            (std::vector<Ends>{{recv, 0, 0}, {send, 2, 0}, {recv, 2, 1}, {send, 0, 1}}));
  EXPECT_EQ(of(shift(1, 6), 2, 3), (std::vector<Ends>{{recv, 1, 0}, {send, 1, 1}}));
}

// Ranks may do what they list one after the other, each waiting for its peer: nobody waits forever.
TEST(Shifted, EveryPieceThatIsSentIsReceivedInTheSameOrder) {
  for (const std::int64_t members : {2, 3, 4, 8})
    for (const bool zigzag : {false, true})
      for (const std::int64_t samples : {1, 3})
        for (std::int64_t distance = 1 - 2 * members; distance < 2 * members; ++distance) {
          if (distance == 0) continue;
          const std::int64_t chunks = zigzag ? 2 * members : 0;
          std::vector<std::deque<Ends>> left;
          std::size_t met = 0, all = 0;
          for (std::int64_t place = 0; place < members; ++place) {
            const std::vector<Ends> own = of(shift(distance, chunks, samples), place, members);
            left.emplace_back(own.begin(), own.end());
            all += own.size();
          }
          for (bool moved = true; std::exchange(moved, false);)
            for (std::size_t place = 0; place < left.size(); ++place) {
              if (left[place].empty() || left[place].front().kind != send) continue;
              std::deque<Ends>& other = left[static_cast<std::size_t>(left[place].front().peer)];
              if (other.empty() || other.front().kind != recv ||
                  other.front().peer != static_cast<std::int32_t>(place))
                continue;
              left[place].pop_front(), other.pop_front();
              met += 2, moved = true;
            }
          EXPECT_EQ(met, all) << members << " ranks, distance " << distance << (zigzag ? ", zigzag" : "");
          if (!zigzag) {
            EXPECT_EQ(static_cast<std::int64_t>(all),
                      2 * samples * std::max<std::int64_t>(0, members - std::abs(distance)));
          } else if (distance == 1) {  // all but the last chunk, and the one in the middle that stays
            EXPECT_EQ(static_cast<std::int64_t>(all), 2 * samples * (chunks - 2));
          }
        }
}

// What a rank sends goes over its own link while others send: its time is that of its own bytes.
TEST(Shifted, CostsWhatARankSends) {
  const ExactExchange exact = exact_exchange(shift(1, 8), 4, "cpu", "cp");
  EXPECT_EQ(exact.kind, CommKind::send);
  EXPECT_EQ(exact.members, 2);
  EXPECT_EQ(exact.bytes, 12 * size_of(DType::f32));
  EXPECT_FALSE(shift(1).is_between_two());
}

}  // namespace
}  // namespace prun::test::shifted_test
