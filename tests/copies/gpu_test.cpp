// The comm plugin `copies` among processes with GPUs: 2, 3 and 4 ranks, which share GPUs where there are
// fewer. Skipped where there is no GPU.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "gpu_rank.hpp"
#include "numbers.hpp"
#include "prun/error.hpp"

namespace prun::test::copies_test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::broadcast, CommKind::all_to_all};
constexpr DType real[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr DType all_types[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                               DType::i32, DType::i64, DType::u8,   DType::u16};

class Copies : public testing::Test {
 protected:
  void SetUp() override {
    static const int gpus = count_gpus();
    if (gpus == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

bool reduces(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }

// ---------------------------------------------------------------- numbers

// The sum or the maximum in the order of the ranks, in double or float.
double folded(const CommOp& op, std::int32_t size, std::int64_t i) {
  double all = number_of(0, i, op.dtype);
  for (std::int32_t rank = 1; rank < size; ++rank) {
    const double one = number_of(rank, i, op.dtype);
    if (op.reduction == Reduction::max)
      all = std::max(all, one);
    else
      all = op.dtype == DType::f64 ? all + one
                                   : static_cast<double>(static_cast<float>(all) + static_cast<float>(one));
  }
  return all;
}

// ---------------------------------------------------------------- cases

struct Case {
  CommKind kind = CommKind::all_reduce;
  Reduction reduction = Reduction::sum;
  DType type = DType::f32;
  std::int64_t count = 0;
  bool in_place = false;

  std::string text() const {
    return detail::concat(name_of(kind), reduction == Reduction::max ? " (max)" : "", " of ", count, " x ",
                          name_of(type), in_place ? " in place" : "");
  }
};

// One rank's part of a case in its memory, `in` in front and `out` behind the middle.
class Placed {
 public:
  Placed(GpuRank& gpu, const Case& tested, std::int32_t rank, std::int32_t size)
      : gpu_(gpu), case_(tested), rank_(rank), size_(size) {
    const bool many_in = tested.kind == CommKind::reduce_scatter || tested.kind == CommKind::all_to_all,
               many_out = tested.kind == CommKind::all_gather || tested.kind == CommKind::all_to_all;
    in_count_ = tested.count * (many_in ? size : 1), out_count_ = tested.count * (many_out ? size : 1);
    std::byte *in = gpu.memory(), *out = gpu.memory() + gpu.memory_bytes() / 2;
    require(std::max(in_count_, out_count_) * size_of(tested.type) <= gpu.memory_bytes() / 2, "memory");
    if (tested.in_place && tested.kind == CommKind::all_reduce) out = in;
    if (tested.in_place && tested.kind == CommKind::all_gather) in = out + bytes(rank * tested.count);
    if (tested.in_place && tested.kind == CommKind::reduce_scatter) out = in + bytes(rank * tested.count);
    op_.kind = tested.kind, op_.reduction = tested.reduction, op_.dtype = tested.type;
    op_.count = tested.count, op_.in = in, op_.out = out;
    op_.peer = tested.kind == CommKind::broadcast ? size / 2 : -1;
    fill(in, out);
  }

  const CommOp& op() const { return op_; }

  void check() const {
    Bytes got(static_cast<std::size_t>(bytes(out_count_))), want(got.size());
    gpu_.download(got.data(), static_cast<std::byte*>(op_.out), got.size());
    for (std::int64_t i = 0; i < out_count_; ++i) set(want, case_.type, i, expected(i));
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != want[i])
        throw std::runtime_error(detail::concat(case_.text(), " among ", size_, ": rank ", rank_, ", byte ",
                                                i, " of ", got.size(), " is wrong"));
  }

 private:
  std::int64_t bytes(std::int64_t count) const { return count * size_of(case_.type); }

  void fill(std::byte* in, std::byte* out) const {
    const bool root = case_.kind == CommKind::broadcast && rank_ == op_.peer;
    Bytes mine(static_cast<std::size_t>(bytes(in_count_)));
    for (std::int64_t i = 0; i < in_count_; ++i) set(mine, case_.type, i, number_of(rank_, i, case_.type));
    const Bytes nothing(static_cast<std::size_t>(bytes(out_count_)), std::byte{0x5a});
    if (out != in) gpu_.upload(gpu_.memory() + gpu_.memory_bytes() / 2, nothing.data(), nothing.size());
    gpu_.upload(root ? out : in, mine.data(), mine.size());
  }

  double expected(std::int64_t i) const {
    const std::int64_t count = case_.count;
    const auto from = static_cast<std::int32_t>(count > 0 ? i / count : 0);
    switch (case_.kind) {
      case CommKind::all_reduce: return folded(op_, size_, i);
      case CommKind::reduce_scatter: return folded(op_, size_, rank_ * count + i);
      case CommKind::all_gather: return number_of(from, i % count, case_.type);
      case CommKind::all_to_all: return number_of(from, rank_ * count + i % count, case_.type);
      default: return number_of(op_.peer, i, case_.type);
    }
  }

  GpuRank& gpu_;
  const Case case_;
  const std::int32_t rank_, size_;
  std::int64_t in_count_ = 0, out_count_ = 0;
  CommOp op_;
};

void expect_case(GpuRank& gpu, const Rank& rank, const Case& tested) {
  const Placed placed(gpu, tested, rank.number, rank.size);
  const CommCounters before = gpu.member().counters();
  gpu.run({placed.op()});
  placed.check();
  require(gpu.member().counters().operations == before.operations + 1, "operations are counted");
}

std::vector<Case> cases(std::int64_t count) {
  std::vector<Case> all;
  for (const CommKind kind : kinds)
    for (const bool in_place : {false, true}) {
      if (in_place && (kind == CommKind::broadcast || kind == CommKind::all_to_all)) continue;
      if (!reduces(kind))
        for (const DType type : all_types) all.push_back({kind, Reduction::sum, type, count, in_place});
      else
        for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
          for (const DType type : real) all.push_back({kind, reduction, type, count, in_place});
          all.push_back({kind, reduction, DType::i32, count, in_place});
          all.push_back({kind, reduction, DType::i64, count, in_place});
        }
    }
  return all;
}

TEST_F(Copies, EveryKindOfEveryTypeGivesWhatIsExpected) {
  for (const bool direct : {false, true})
    for (const int size : {2, 3, 4})
      expect_ranks(size, [=](const Rank& rank) {
        GpuRank gpu(rank, 4 * mib, 32 * mib, direct);
        for (const std::int64_t count : {0, 1, 37, 4099})
          for (const Case& tested : cases(count)) expect_case(gpu, rank, tested);
      });
}

// Longer than slots are: messages are cut, and slots are used again. Also where members share lanes.
TEST_F(Copies, LongExchangesAreCut) {
  for (const bool direct : {false, true})
    for (const auto& [size, lanes] : {std::pair(2, 15), std::pair(4, 15), std::pair(4, 2)})
      expect_ranks(size, [direct, lanes = lanes](const Rank& rank) {
        GpuRank gpu(rank, mib, 64 * mib, direct, 0, lanes);
        for (const CommKind kind : kinds)
          for (const DType type : {DType::f32, DType::bf16})
            expect_case(gpu, rank, {kind, Reduction::sum, type, 1000003, false});
        expect_case(gpu, rank, {CommKind::all_reduce, Reduction::sum, DType::bf16, 3000017, true});
      });
}

// Ranks that share a GPU take turns of milliseconds, so they do fewer.
TEST_F(Copies, TenThousandExchangesOfRandomSizes) {
  for (const int size : {2, 4})
    expect_ranks(size, [=](const Rank& rank) {
      GpuRank gpu(rank, mib, 32 * mib, size == 2);
      const int exchanges = gpu.is_shared() ? 1000 : 10000;
      std::mt19937 random(17);  // draws alike on all ranks
      for (int i = 0; i < exchanges; ++i) {
        const unsigned most = i % 500 == 0 ? 400000 : i % 20 == 0 ? 20000 : 500;
        const CommKind kind = kinds[random() % std::size(kinds)];
        const DType type = real[random() % std::size(real)];
        const auto count = static_cast<std::int64_t>(random() % most);
        const bool in_place = random() % 2 > 0 && kind != CommKind::broadcast && kind != CommKind::all_to_all;
        expect_case(gpu, rank, {kind, Reduction::sum, type, count, in_place});
      }
    });
}

// ---------------------------------------------------------------- order and lists

// Thousands that nobody waits for in between: the host must not run away from the lanes.
TEST_F(Copies, ManyExchangesMayBeStartedAhead) {
  for (const bool direct : {false, true})
    expect_ranks(2, [=](const Rank& rank) {
      GpuRank gpu(rank, mib, 32 * mib, direct);
      const Placed placed(gpu, {CommKind::all_gather, Reduction::sum, DType::f32, 5000, false}, rank.number,
                          rank.size);
      const std::vector<CommOp> ops = {placed.op()};
      gpu.member().prepare(ops);
      for (int i = 0; i < (gpu.is_shared() ? 1000 : 5000); ++i) gpu.start(ops);
      gpu.finish();
      placed.check();
    });
}

// Each sends to the next and takes from the one before, by one list.
TEST_F(Copies, RingsOfLongMessagesDoNotStandStill) {
  for (const int size : {2, 3, 4})
    expect_ranks(size, [](const Rank& rank) {
      constexpr std::int64_t count = 1000003;
      GpuRank gpu(rank, mib, 32 * mib);
      const std::int32_t before = (rank.number + rank.size - 1) % rank.size;
      Bytes mine(count * 4), theirs(count * 4), got(count * 4);
      for (std::int64_t i = 0; i < count; ++i) {
        set(mine, DType::f32, i, number_of(rank.number, i, DType::f32));
        set(theirs, DType::f32, i, number_of(before, i, DType::f32));
      }
      std::byte* const out = gpu.memory() + gpu.memory_bytes() / 2;
      gpu.upload(gpu.memory(), mine.data(), mine.size());
      CommOp send, recv;
      send.kind = CommKind::send, send.in = gpu.memory(), send.peer = (rank.number + 1) % rank.size;
      recv.kind = CommKind::recv, recv.out = out, recv.peer = before;
      send.count = recv.count = count;
      if (before < rank.number)
        gpu.run({recv, send});
      else
        gpu.run({send, recv});
      gpu.download(got.data(), out, got.size());
      require(got == theirs, "a message of a ring");
    });
}

TEST_F(Copies, ABarrierHoldsTheStream) {
  expect_ranks(2, [](const Rank& rank) {
    GpuRank gpu(rank, mib, mib);
    CommOp barrier;
    gpu.run({barrier});
    const auto begin = Clock::now();
    if (rank.number == 1) std::this_thread::sleep_for(300ms);
    gpu.run({barrier});
    require(rank.number == 1 || Clock::now() - begin > 100ms, "rank 0 did not wait");
  });
}

// Two groups, as two axes have them, at the same time on two streams, begun in another order by each rank.
TEST_F(Copies, TwoGroupsDoNotHoldEachOther) {
  expect_ranks(
      2,
      [](const Rank& rank) {
        GpuRank one(rank, mib, 32 * mib, true, 0), two(rank, mib, 32 * mib, true, 1);
        const Case tested{CommKind::all_reduce, Reduction::sum, DType::bf16, 2000003, false};
        const Placed first(one, tested, rank.number, rank.size), second(two, tested, rank.number, rank.size);
        const std::vector<CommOp> ops_of_one = {first.op()}, ops_of_two = {second.op()};
        one.member().prepare(ops_of_one);
        two.member().prepare(ops_of_two);
        for (int i = 0; i < 3; ++i) {
          if (rank.number == 0) one.start(ops_of_one);
          two.start(ops_of_two);
          if (rank.number == 1) one.start(ops_of_one);
        }
        one.finish();
        two.finish();
        first.check();
        second.check();
      },
      2);
}

// Rank 2 sends to all, and rank 0 comes late. Messages are more than slots hold, so where members share a
// lane, all wait for the late one.
TEST_F(Copies, AMemberThatIsLateHoldsUpItsOwnLane) {
  for (const bool direct : {false, true})
    expect_ranks(4, [=](const Rank& rank) {
      GpuRank gpu(rank, mib, 32 * mib, direct);
      const Placed placed(gpu, {CommKind::broadcast, Reduction::sum, DType::f32, 1000003, false}, rank.number,
                          rank.size);
      const std::vector<CommOp> ops = {placed.op()}, barrier = {CommOp{}};
      gpu.member().prepare(ops);
      gpu.run(barrier);
      const auto begin = Clock::now();
      if (rank.number == 0) std::this_thread::sleep_for(1s);
      gpu.start(ops);
      gpu.finish();
      const bool waited = Clock::now() - begin > 700ms;
      if (rank.number == 1 || rank.number == 3)
        require(!waited || gpu.is_shared(), "a member waited for another that was late");
      placed.check();
    });
}

// ---------------------------------------------------------------- failures

template <class Work>
bool is_given_up(Work work) {
  try {
    work();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::comm_failed, error.what());
    return true;
  }
  return false;
}

void expect_given_up(GpuRank& gpu) {
  require(is_given_up([&] { gpu.member().check(); }), "check() says nothing");
}

// The last rank ends itself in the middle; the others are told 300 ms later, by another thread, as the
// executor does: they list more than lanes take, so start() waits for room that only abort() gives.
TEST_F(Copies, AKilledPeerLeavesNothingWaiting) {
  for (const auto& [size, direct] : {std::pair(2, true), std::pair(4, true), std::pair(4, false)}) {
    const auto body = [direct = direct](const Rank& rank) {
      GpuRank gpu(rank, mib, 64 * mib, direct);
      const Placed placed(gpu, {CommKind::all_reduce, Reduction::sum, DType::f32, 3000017, false},
                          rank.number, rank.size);
      const std::vector<CommOp> ops = {placed.op()};
      gpu.run(ops);
      if (rank.number == rank.size - 1) {
        std::this_thread::sleep_for(50ms);
        ::kill(::getpid(), SIGKILL);
      }
      std::jthread watcher([&] {
        std::this_thread::sleep_for(300ms);
        gpu.member().abort();
      });
      const bool was_held = is_given_up([&] {
        for (int i = 0; i < 30; ++i) gpu.start(ops);
      });
      watcher.join();
      gpu.drain();
      require(was_held, "30 exchanges with a dead rank were started");
      expect_given_up(gpu);
      require(is_given_up([&] { gpu.start(ops); }), "start() after abort() returned");
    };
    const std::vector<Outcome> outcomes = run_ranks(size, body, 1, 60s);
    for (std::size_t i = 0; i + 1 < outcomes.size(); ++i)
      EXPECT_EQ(outcomes[i].message, "") << "rank " << i << " of " << size;
    EXPECT_TRUE(outcomes.back().killed);
  }
}

// One gives up; the other learns of it from check(), before anything it waits for comes.
TEST_F(Copies, WhoGivesUpIsNoticedByTheOthers) {
  expect_ranks(2, [](const Rank& rank) {
    GpuRank gpu(rank, mib, 32 * mib);
    const Placed placed(gpu, {CommKind::all_gather, Reduction::sum, DType::f32, 2000003, false}, rank.number,
                        rank.size);
    gpu.run({placed.op()});
    if (rank.number == 0) {
      gpu.member().abort();
      expect_given_up(gpu);
      std::this_thread::sleep_for(1s);  // the other's copies find memory that is still there
      return;
    }
    // The other may have given up before this one starts.
    const std::vector<CommOp> ops = {placed.op()};
    require(is_given_up([&] {
              gpu.start(ops);
              gpu.finish();
            }),
            "an exchange with a member that gave up is done");
    gpu.member().abort();
    gpu.drain();
  });
}

TEST_F(Copies, GroupsMayBeMadeAgainAndAgain) {
  expect_ranks(2, [](const Rank& rank) {
    for (int i = 0; i < 5; ++i) {
      GpuRank gpu(rank, 8 * mib, 8 * mib);
      expect_case(gpu, rank, {CommKind::all_reduce, Reduction::sum, DType::f32, 100003, i % 2 > 0});
    }
  });
}

}  // namespace
}  // namespace prun::test::copies_test
