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
  Placed(const Case& one, std::int32_t own_rank, std::int32_t members)
      : tested(one), rank(own_rank), size(members) {
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
    if (tested.kind != CommKind::broadcast) {
      computed = in;
      spoil(const_cast<void*>(op.in));
    }
  }

  // These stand for the queue: it computes the operand before an operation, and uses its memory again behind
  // it.
  void compute(PretendedLanes& lanes) const { write(lanes, computed); }
  void use_again(PretendedLanes& lanes) {
    if (tested.in_place) return;
    spoiled.assign(computed.size(), -7);
    write(lanes, spoiled);
  }

  void spoil(void* memory) const { std::fill_n(static_cast<std::int32_t*>(memory), computed.size(), -9); }
  void write(PretendedLanes& lanes, const Numbers& numbers) const {
    if (numbers.empty()) return;
    lanes.copy(static_cast<std::byte*>(const_cast<void*>(op.in)),
               reinterpret_cast<const std::byte*>(numbers.data()),
               static_cast<std::int64_t>(numbers.size()) * 4);
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
  Numbers in, out, computed, spoiled;
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

// Gives all members a list. Messages of every other operation go right to where they belong, if `direct`.
Members give(PretendedGroup& group, const std::vector<Case>& list, bool direct) {
  const std::int32_t size = group.size();
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
    PretendedLanes& member = group.member(rank);
    const std::uint64_t before = member.bytes_sent();
    for (const auto& one : placed[static_cast<std::size_t>(rank)]) one->compute(member);
    copies::Schedule(group.layout(rank), member).run(ops, places);
    for (const auto& one : placed[static_cast<std::size_t>(rank)]) one->use_again(member);
    EXPECT_EQ(member.bytes_sent() - before, sent) << name_of(list.front().kind);
  }
  return placed;
}

void check(const Members& placed) {
  for (const auto& member : placed)
    for (const auto& one : member) one->check();
}

void expect_results(PretendedGroup& group, const std::vector<Case>& list, bool direct) {
  const Members placed = give(group, list, direct);
  ASSERT_TRUE(group.run()) << "lanes wait for each other";
  check(placed);
}

// Draws lists of one to four operations, most of them short.
std::vector<Case> draw_list(std::mt19937& random, unsigned longest) {
  std::vector<Case> list;
  for (unsigned n = 1 + random() % 4; n > 0; --n)
    list.push_back({kinds[random() % std::size(kinds)],
                    static_cast<std::int64_t>(random() % (random() % 4 ? 300 : longest)), random() % 2 > 0});
  return list;
}

TEST(Schedule, EveryKindGivesWhatIsExpectedInAnyOrderOfSteps) {
  for (const std::int32_t size : {1, 2, 3, 4, 8})
    for (const CommKind kind : kinds)
      for (const std::int32_t lanes : {1, 15}) {
        PretendedGroup group(size, buffer, 7u * static_cast<unsigned>(size), lanes);
        for (const std::int64_t count : {0, 1, 37, 4099, 40000, 70001})
          for (const bool in_place : {false, true})
            for (const bool direct : {false, true}) expect_results(group, {{kind, count, in_place}}, direct);
      }
}

TEST(Schedule, ListsOfRandomOperationsFollowEachOther) {
  std::mt19937 random(5);
  for (const std::int32_t size : {2, 3, 5})
    for (const std::int32_t lanes : {1, 2, 15}) {
      PretendedGroup group(size, buffer, 3u, lanes);
      for (int round = 0; round < 40; ++round)
        expect_results(group, draw_list(random, 30000), random() % 2 > 0);
    }
}

// 10,000 exchanges, twenty lists ahead of the lanes, each of which is a thread: sanitizers look for memory
// that is read or written too early.
TEST(Schedule, TenThousandExchangesOfRandomSizesOnThreads) {
  std::mt19937 random(23);
  int exchanges = 0;
  for (int round = 0; exchanges < 10000; ++round) {
    const std::int32_t size = 2 + round % 3, lanes = std::array{15, 2, 1, 15}[round / 3 % 4];
    PretendedGroup group(size, buffer, 1u, lanes);
    std::vector<Members> given;
    for (int list = 0; list < 20; ++list) {
      given.push_back(give(group, draw_list(random, 8000), random() % 2 > 0));
      exchanges += static_cast<int>(given.back().front().size());
    }
    ASSERT_TRUE(group.run_on_threads()) << size << " members, " << lanes << " lanes";
    for (const Members& placed : given) check(placed);
  }
}

// With a lane for each other member, one that takes nothing holds up nobody else; where lanes are shared, it
// holds up those that share one with it.
TEST(Schedule, AMemberThatIsLateHoldsUpItsOwnLane) {
  constexpr std::int32_t size = 4, late = 0;
  for (const std::int32_t lanes : {3, 1})
    for (const bool direct : {false, true}) {
      PretendedGroup group(size, buffer, 13u, lanes);
      const Members placed = give(group, {{CommKind::broadcast, 70001, false}}, direct);
      EXPECT_FALSE(group.run(late));
      int arrived = 0;
      for (std::int32_t rank = 0; rank < size - 1; ++rank) {
        const Placed& one = *placed[static_cast<std::size_t>(rank)].front();
        arrived += one.out.back() == one.expected(70000);
      }
      EXPECT_EQ(arrived, lanes == 3 ? 2 : 0) << direct;
      EXPECT_TRUE(group.run());
      check(placed);
    }
}

// Each sends to the next and takes from the one before, listed by who sends, as plans have it.
TEST(Schedule, RingsOfLongMessagesDoNotStandStill) {
  for (const std::int32_t size : {2, 3, 4}) {
    constexpr std::int64_t count = 100000;
    PretendedGroup group(size, buffer, 11u, 15);
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

TEST(Layout, EachOtherMemberHasALaneAsFarAsTheyGo) {
  for (const std::int32_t size : {2, 4, 16})
    for (const std::int32_t lanes : {1, 3, 15})
      for (std::int32_t rank = 0; rank < size; ++rank) {
        const copies::Layout layout(rank, size, 1 << 20, 1 << 20, lanes);
        EXPECT_EQ(layout.lanes(), std::min(lanes, size - 1));
        std::vector<int> members(static_cast<std::size_t>(layout.lanes()));
        for (std::int32_t k = 1; k < size; ++k)
          ++members.at(static_cast<std::size_t>(layout.lane_to(layout.next(k))));
        const auto [fewest, most] = std::minmax_element(members.begin(), members.end());
        EXPECT_LE(*most - *fewest, 1) << size << " members, " << lanes << " lanes";
      }
}

TEST(Layout, SlotsAreDisjointAndWithinTheBuffer) {
  constexpr std::int64_t bytes = std::int64_t{1} << 20;
  for (const std::int32_t size : {2, 3, 8, 16})
    for (std::int32_t to = 0; to < size; ++to) {
      const copies::Layout layout(to, size, bytes, bytes, 4);
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
