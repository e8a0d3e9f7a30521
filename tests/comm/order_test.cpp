// Operations under way at the same time, sends and receives in any order, groups that overlap; and that all
// members end with the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "device/call_counter.hpp"
#include "ranks.hpp"

namespace prun::test::order_test {
namespace {

using Floats = std::vector<float>;

CommOp send_to(int peer, const Floats& data) {
  return {CommKind::send,
          Reduction::sum,
          DType::f32,
          peer,
          data.data(),
          nullptr,
          static_cast<std::int64_t>(data.size())};
}
CommOp receive_from(int peer, Floats& data) {
  return {CommKind::recv,
          Reduction::sum,
          DType::f32,
          peer,
          nullptr,
          data.data(),
          static_cast<std::int64_t>(data.size())};
}
CommOp all_reduce(Floats& data) {
  return {CommKind::all_reduce,
          Reduction::sum,
          DType::f32,
          -1,
          data.data(),
          data.data(),
          static_cast<std::int64_t>(data.size())};
}

Floats numbered(std::size_t size, float first) {
  Floats data(size);
  std::iota(data.begin(), data.end(), first);
  return data;
}

class Order : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Order, testing::Values(1u, 1001u, 300001u));

TEST_P(Order, BothDirectionsInOneStart) {
  expect_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    const int other = 1 - rank.number;
    const Floats mine = numbered(GetParam(), static_cast<float>(100 * rank.number));
    Floats theirs(GetParam());
    comm.start({send_to(other, mine), receive_from(other, theirs)});
    comm.finish();
    require(theirs == numbered(GetParam(), static_cast<float>(100 * other)), "wrong data arrived");
  });
}

// What one starts last the other starts first.
TEST_P(Order, CrossedBetweenStarts) {
  expect_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    const std::size_t size = GetParam();
    Floats a = numbered(size, 1), b = numbered(size, 2), c = numbered(size, 3);
    const Floats want_a = a, want_b = b, want_c = c;
    if (rank.number == 0) {
      c.assign(size, 0);
      comm.start({receive_from(1, c)});
      comm.start({send_to(1, a)});
      comm.start({send_to(1, b)});
    } else {
      a.assign(size, 0), b.assign(size, 0);
      comm.start({receive_from(0, a), receive_from(0, b)});
      comm.start({send_to(0, c)});
    }
    comm.finish();
    require(a == want_a && b == want_b, "rank 1 got them in another order");
    require(c == want_c, "rank 0 got something else");
  });
}

// Twenty of them: more than may reduce at a time.
TEST_P(Order, ManyOperationsUnderWay) {
  expect_ranks(3, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.chunk_kib = 64});
    const std::size_t size = std::min<std::size_t>(GetParam(), 50001);
    std::vector<Floats> data;
    for (int i = 0; i < 20; ++i)
      data.push_back(numbered(size + static_cast<std::size_t>(i), static_cast<float>(i)));
    Floats to_right = numbered(size, 7), from_left(size);
    std::vector<CommOp> ops;
    for (Floats& one : data) ops.push_back(all_reduce(one));
    ops.insert(ops.begin() + 10, {CommKind::barrier});
    ops.insert(ops.begin() + 5, send_to((rank.number + 1) % 3, to_right));
    comm.start(ops);
    comm.start({receive_from((rank.number + 2) % 3, from_left)});
    comm.finish();
    require(from_left == to_right, "the message from the left");
    for (int i = 0; i < 20; ++i)
      for (std::size_t k = 0; k < data[static_cast<std::size_t>(i)].size(); ++k)
        require(data[static_cast<std::size_t>(i)][k] == 3 * (static_cast<float>(i) + static_cast<float>(k)),
                "a sum");
  });
}

TEST(Groups, OverlapOnTwoThreads) {
  const auto work = [](const Rank& rank, int mesh, const std::vector<int>& group) {
    const auto found = std::find(group.begin(), group.end(), rank.number);
    if (found == group.end()) return;
    TestComm comm(rank.meshes[static_cast<std::size_t>(mesh)], group,
                  static_cast<int>(found - group.begin()));
    for (int round = 0; round < 50; ++round) {
      Floats data(round % 2 ? 10 : 40000, static_cast<float>(round + mesh));
      comm.run(all_reduce(data));
      const float want = static_cast<float>(group.size()) * static_cast<float>(round + mesh);
      require(std::all_of(data.begin(), data.end(), [want](float x) { return x == want; }), "a sum");
    }
  };
  expect_ranks(
      3,
      [&](const Rank& rank) {
        std::string trouble;
        std::thread other([&] {
          try {
            work(rank, 1, {2, 0});
          } catch (const std::exception& error) {
            trouble = error.what();
          }
        });
        try {
          work(rank, 0, {0, 1, 2});
        } catch (...) {
          other.join();
          throw;
        }
        other.join();
        require(trouble.empty(), trouble);
      },
      2);
}

template <class T>
std::vector<T> random_numbers(int rank, std::size_t size) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> draw;
  std::vector<T> data(size);
  for (T& x : data) x = T(draw(generator));
  return data;
}

// The sums of random numbers depend on the order: all members, and all repetitions, must take the same.
template <class T>
void expect_same_bits(const Rank& rank, DType dtype, std::size_t size) {
  TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.chunk_kib = 16});
  const std::vector<T> input = random_numbers<T>(rank.number, size);
  const std::size_t bytes = size * sizeof(T);
  std::vector<std::byte> first;
  for (int repetition = 0; repetition < 3; ++repetition) {
    std::vector<std::byte> sum(bytes), all(bytes * static_cast<std::size_t>(rank.size));
    comm.run({CommKind::all_reduce, Reduction::sum, dtype, -1, input.data(), sum.data(),
              static_cast<std::int64_t>(size)});
    comm.run({CommKind::all_gather, Reduction::sum, DType::u8, -1, sum.data(), all.data(),
              static_cast<std::int64_t>(bytes)});
    for (int r = 0; r < rank.size; ++r)
      require(std::memcmp(all.data() + static_cast<std::size_t>(r) * bytes, sum.data(), bytes) == 0,
              std::string(name_of(dtype)) + ": members differ");
    if (repetition == 0) first = sum;
    require(sum == first, std::string(name_of(dtype)) + ": repetitions differ");
  }
}

TEST(Bits, AreTheSameOnAllMembersAndEveryTime) {
  for (const int size : {2, 3, 5, 8})
    expect_ranks(size, [](const Rank& rank) {
      for (const std::size_t count : {3u, 1000u, 40001u}) {
        expect_same_bits<float>(rank, DType::f32, count);
        expect_same_bits<double>(rank, DType::f64, count);
        expect_same_bits<bf16>(rank, DType::bf16, count);
        expect_same_bits<f16>(rank, DType::f16, count);
      }
    });
}

// A bf16 sum of three is rounded after each addition, in the order of the ranks.
TEST(Bits, Bf16IsRoundedAfterEachAddition) {
  expect_ranks(3, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number);
    const float values[] = {256.0f, 1.0f, 1.5f};
    const bf16 mine(values[rank.number]);
    bf16 sum;
    comm.run({CommKind::all_reduce, Reduction::sum, DType::bf16, -1, &mine, &sum, 1});
    const bf16 want(static_cast<float>(bf16(256.0f + 1.0f)) + 1.5f);
    require(sum.bits == want.bits, "rounded otherwise");
  });
}

std::uint64_t on_the_wire(CommKind kind, std::uint64_t bytes, int n, int small_kib) {
  const auto others = static_cast<std::uint64_t>(n - 1);
  if (kind != CommKind::all_reduce) return others * bytes;
  return small_kib > 0 ? others * bytes : 2 * others * bytes / static_cast<std::uint64_t>(n);
}

// The formulas stand at the top of the algorithms' files.
TEST(Counters, EqualTheFormulas) {
  for (const int size : {1, 2, 4})
    for (const int small_kib : {0, 1024})
      expect_ranks(size, [small_kib](const Rank& rank) {
        TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.chunk_kib = 4, .small_kib = small_kib});
        require(comm.counters().operations == 0 && comm.counters().bytes_sent == 0, "not zero at first");
        constexpr std::int64_t count = 16384;
        Floats in(count * static_cast<std::size_t>(rank.size), 1.0f), out(in.size());
        std::uint64_t bytes = 0, operations = 0;
        for (const CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                    CommKind::all_to_all, CommKind::barrier}) {
          comm.run({kind, Reduction::sum, DType::f32, -1, in.data(), out.data(), count});
          if (kind != CommKind::barrier) bytes += on_the_wire(kind, count * 4, rank.size, small_kib);
          const CommCounters now = comm.counters();
          require(now.operations == ++operations, "operations");
          require(now.bytes_sent == bytes && now.bytes_received == bytes,
                  std::string(name_of(kind)) + " sent " + std::to_string(now.bytes_sent) + ", not " +
                      std::to_string(bytes));
        }
      });
}

TEST(Quiet, RepeatedOperationsDoNotAllocate) {
  if (!calls_are_counted()) GTEST_SKIP() << "a sanitizer stands in the way of counting";
  expect_ranks(2, [](const Rank& rank) {
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.chunk_kib = 64});
    Floats small(10, 0), large(200000, 0), to(5000, 1), from(5000);
    const int other = 1 - rank.number;
    const std::vector<CommOp> ops = {all_reduce(small), send_to(other, to), all_reduce(large),
                                     receive_from(other, from)};
    const auto repeat = [&](int times) {
      for (int i = 0; i < times; ++i) {
        comm.start(ops);
        comm.finish();
      }
    };
    const auto allocations_of = [&](int times) {
      const Calls before = calls_so_far();
      repeat(times);
      return calls_so_far().allocations - before.allocations;
    };
    repeat(20);
    // UCX's pools grow when the other process is late as never before: so one round in four without any will
    // do.
    std::int64_t fewest = allocations_of(50);
    for (int round = 1; round < 4; ++round) fewest = std::min(fewest, allocations_of(50));
    require(fewest == 0, std::to_string(fewest) + " allocations");
  });
}

// Connections, as this process holds them, which UCX makes when they are first used.
std::vector<std::string> sockets() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:")) found.push_back(target);
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(FirstStep, MakesNoConnection) {
  expect_ranks(3, [](const Rank& rank) {
    const std::size_t of_the_test = sockets().size();
    TestComm comm(rank.meshes[0], rank.everyone(), rank.number, {.shared_memory = false});
    Floats small(10, 0), large(2000000, 0), to(500000, 1), from(500000);
    const std::vector<CommOp> ops = {all_reduce(small), all_reduce(large), send_to((rank.number + 1) % 3, to),
                                     receive_from((rank.number + 2) % 3, from)};
    comm.connect(ops);
    const std::vector<std::string> before = sockets();
    require(before.size() > of_the_test, "UCX has no connections");
    comm.start(ops);
    comm.finish();
    // Of two that connect to each other at once, UCX closes one later.
    const std::vector<std::string> after = sockets();
    require(std::includes(before.begin(), before.end(), after.begin(), after.end()),
            "the first operations made a connection");
  });
}

}  // namespace
}  // namespace prun::test::order_test
