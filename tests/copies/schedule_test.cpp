// Tests what the comm plugin `copies` makes of operations, on members whose steps are taken in any order.
#include "schedule.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "pretended_lanes.hpp"

namespace prun::test::schedule_test {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr std::int64_t buffer = 64 << 10;
constexpr CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::broadcast,  CommKind::all_to_all, CommKind::barrier};

std::int32_t number_of(std::int32_t rank, std::int64_t i) {
  return static_cast<std::int32_t>((rank * 1009 + i * 31 + i / 7) % 1000);
}

// Adds up as the pretended lanes do: the order of the members counts.
std::int32_t folded(std::int32_t size, std::int64_t i) {
  std::int32_t sum = 0;
  for (std::int32_t rank = 0; rank < size; ++rank) sum = sum * 3 + number_of(rank, i);
  return sum;
}

struct Case {
  CommKind kind;
  std::int64_t count;
  bool in_place;
};

// One member's memory for an operation.
struct Placed {
  Placed(const Case& tested, std::int32_t rank, std::int32_t size) : tested(tested), rank(rank), size(size) {
    const bool many_in = tested.kind == CommKind::reduce_scatter || tested.kind == CommKind::all_to_all,
               many_out = tested.kind == CommKind::all_gather || tested.kind == CommKind::all_to_all;
    in.resize(static_cast<std::size_t>(tested.count * (many_in ? size : 1)));
    out.assign(static_cast<std::size_t>(tested.count * (many_out ? size : 1)), -1);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = number_of(rank, static_cast<std::int64_t>(i));
    op.kind = tested.kind, op.dtype = DType::i32, op.count = tested.count;
    op.in = in.data(), op.out = out.data();
    if (tested.kind == CommKind::broadcast) {
      op.peer = size - 1;
      if (rank == op.peer) out = in;
    }
    if (tested.in_place) place();
  }

  void place() {
    const std::int64_t own = rank * tested.count;
    if (tested.kind == CommKind::all_reduce) op.out = in.data();
    if (tested.kind == CommKind::reduce_scatter) op.out = in.data() + own;
    if (tested.kind == CommKind::all_gather) {
      std::copy(in.begin(), in.end(), out.begin() + own);
      op.in = out.data() + own;
    }
  }

  std::int32_t expected(std::int64_t i) const {
    const auto from = static_cast<std::int32_t>(tested.count > 0 ? i / tested.count : 0);
    switch (tested.kind) {
      case CommKind::all_reduce: return folded(size, i);
      case CommKind::reduce_scatter: return folded(size, rank * tested.count + i);
      case CommKind::all_gather: return number_of(from, i % tested.count);
      case CommKind::all_to_all: return number_of(from, rank * tested.count + i % tested.count);
      default: return number_of(size - 1, i);
    }
  }

  void check() const {
    const auto* const result = static_cast<const std::int32_t*>(op.out);
    const std::size_t count = tested.kind == CommKind::barrier ? 0 : out.size();
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(result[i], expected(static_cast<std::int64_t>(i)))
          << name_of(tested.kind) << " of " << tested.count << ", rank " << rank << " of " << size
          << ", element " << i;
  }

  Case tested;
  std::int32_t rank, size;
  Numbers in, out;
  CommOp op;
};

using Members = std::vector<std::vector<std::unique_ptr<Placed>>>;

// Where the results of operation `i` lie, as `rank` sees them.
copies::Places places_of(const Members& members, std::size_t i, std::int32_t rank) {
  copies::Places places{};
  for (std::size_t other = 0; other < members.size(); ++other)
    if (static_cast<std::int32_t>(other) != rank)
      places[other] = static_cast<std::byte*>(members[other][i]->op.out);
  return places;
}

// Messages of every other operation go right to where they belong, if `direct`.
void expect_results(PretendedGroup& group, std::int32_t size, const std::vector<Case>& list, bool direct) {
  Members placed;
  for (std::int32_t rank = 0; rank < size; ++rank) {
    placed.emplace_back();
    for (const Case& one : list) placed.back().push_back(std::make_unique<Placed>(one, rank, size));
  }
  for (std::int32_t rank = 0; rank < size; ++rank) {
    std::vector<CommOp> ops;
    std::vector<copies::Places> places;
    std::uint64_t sent = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      ops.push_back(placed[static_cast<std::size_t>(rank)][i]->op);
      places.push_back(direct && i % 2 == 0 ? places_of(placed, i, rank) : copies::Places{});
      sent += copies::traffic_of(ops.back(), group.layout(rank)).sent;
    }
    const std::uint64_t before = group.member(rank).bytes_sent();
    copies::Schedule(group.layout(rank), group.member(rank)).run(ops, places);
    EXPECT_EQ(group.member(rank).bytes_sent() - before, sent) << name_of(list.front().kind);
  }
  ASSERT_TRUE(group.run()) << "lanes wait for each other";
  for (const auto& member : placed)
    for (const auto& one : member) one->check();
}

TEST(Schedule, EveryKindGivesWhatIsExpectedInAnyOrderOfSteps) {
  for (const std::int32_t size : {1, 2, 3, 4, 8})
    for (const CommKind kind : kinds) {
      PretendedGroup group(size, buffer, 7u * static_cast<unsigned>(size));
      for (const std::int64_t count : {0, 1, 37, 4099, 40000, 70001})
        for (const bool in_place : {false, true})
          for (const bool direct : {false, true})
            expect_results(group, size, {{kind, count, in_place}}, direct);
    }
}

TEST(Schedule, ListsOfRandomOperationsFollowEachOther) {
  std::mt19937 random(5);
  for (const std::int32_t size : {2, 3, 5}) {
    PretendedGroup group(size, buffer, 3u);
    for (int round = 0; round < 60; ++round) {
      std::vector<Case> list;
      for (unsigned n = 1 + random() % 4; n > 0; --n)
        list.push_back({kinds[random() % std::size(kinds)],
                        static_cast<std::int64_t>(random() % (random() % 4 ? 300 : 30000)),
                        random() % 2 > 0});
      expect_results(group, size, list, random() % 2 > 0);
    }
  }
}

// Each sends to the next and takes from the one before, listed by who sends, as plans have it.
TEST(Schedule, RingsOfLongMessagesDoNotStandStill) {
  for (const std::int32_t size : {2, 3, 4}) {
    constexpr std::int64_t count = 100000;
    PretendedGroup group(size, buffer, 11u);
    std::vector<Numbers> in(static_cast<std::size_t>(size)), out(static_cast<std::size_t>(size));
    for (std::int32_t rank = 0; rank < size; ++rank) {
      Numbers& mine = in[static_cast<std::size_t>(rank)];
      for (std::int64_t i = 0; i < count; ++i) mine.push_back(number_of(rank, i));
      out[static_cast<std::size_t>(rank)].resize(count);
      const std::int32_t before = (rank + size - 1) % size;
      CommOp send, recv;
      send.kind = CommKind::send, send.peer = (rank + 1) % size, send.in = mine.data();
      recv.kind = CommKind::recv, recv.peer = before, recv.out = out[static_cast<std::size_t>(rank)].data();
      send.dtype = recv.dtype = DType::i32, send.count = recv.count = count;
      const std::array<CommOp, 2> ops = before < rank ? std::array{recv, send} : std::array{send, recv};
      copies::Schedule(group.layout(rank), group.member(rank)).run(ops);
    }
    ASSERT_TRUE(group.run()) << size;
    for (std::int32_t rank = 0; rank < size; ++rank)
      EXPECT_EQ(out[static_cast<std::size_t>(rank)], in[static_cast<std::size_t>((rank + size - 1) % size)]);
  }
}

TEST(Layout, PartsOfAnAllReduceAreDisjointAndAllOfIt) {
  for (const std::int64_t count : {0, 1, 100, 4099, 1000003})
    for (const std::int32_t size : {1, 2, 3, 16})
      for (const DType dtype : {DType::f64, DType::bf16}) {
        std::int64_t next = 0;
        for (std::int32_t member = 0; member < size; ++member) {
          const copies::Range part = copies::part_of(count, dtype, member, size);
          EXPECT_EQ(part.first, next);
          EXPECT_GE(part.count, 0);
          next += part.count;
        }
        EXPECT_EQ(next, count);
      }
}

TEST(Layout, SlotsAreDisjointAndWithinTheBuffer) {
  constexpr std::int64_t bytes = std::int64_t{1} << 20;
  for (const std::int32_t size : {2, 3, 8, 16})
    for (std::int32_t to = 0; to < size; ++to) {
      const copies::Layout layout(to, size, bytes, bytes);
      std::vector<std::int64_t> places;
      for (std::int32_t from = 0; from < size; ++from)
        for (std::uint64_t number = 1; from != to && number <= copies::slots; ++number)
          places.push_back(layout.offset(to, from, number));
      std::sort(places.begin(), places.end());
      for (std::size_t i = 0; i < places.size(); ++i) {
        const std::int64_t end = i + 1 < places.size() ? places[i + 1] : bytes;
        EXPECT_LE(places[i] + layout.slot_bytes(), end) << size;
      }
      EXPECT_GE(places.front(), 0);
    }
}

}  // namespace
}  // namespace prun::test::schedule_test
