// Operations through pinned memory, on a device whose memory the host cannot touch.
#include "execute/rank_queues.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>

#include "support/assembly_fixture.hpp"

namespace prun::test::staging_test {
namespace {

constexpr std::int64_t members = 3;
// Of a part: one that fits into a chunk, and one that takes several, of which the last is small.
constexpr std::int64_t small = 5, large = (9 << 20) / 4 + 7;

using Numbers = std::vector<float>;

class Staged : public testing::Test {
 protected:
  void SetUp() override {
    device_ = plugins().create<DeviceInterface>("device",
                                                tiny_recipe({"device.plugin=cpu-async"}).section("device"));
  }
  void TearDown() override {
    if (memory_) raise(device_->release(Space::device, memory_, bytes()));
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(before_.size()) * 4; }

  // Memory of the device that has 1, 2, 3, ...
  void allocate(std::int64_t numbers) {
    TearDown();
    before_.resize(static_cast<std::size_t>(numbers));
    std::iota(before_.begin(), before_.end(), 1.0f);
    void* memory = nullptr;
    raise(device_->allocate(Space::device, bytes(), &memory));
    memory_ = static_cast<float*>(memory);
    raise(device_->upload(memory_, before_.data(), bytes()));
  }
  CommOp op(CommKind kind, std::int64_t count, std::int64_t in, std::int64_t out) const {
    CommOp op;
    op.kind = kind;
    op.dtype = DType::f32;
    op.count = count;
    if (in >= 0) op.in = memory_ + in;
    if (out >= 0) op.out = memory_ + out;
    return op;
  }
  Numbers after() const {
    Numbers numbers(before_.size());
    raise(device_->download(numbers.data(), memory_, bytes()));
    return numbers;
  }
  static bool is_inside(const Staging& staging, const float* at, std::int64_t numbers) {
    const auto* byte = reinterpret_cast<const std::byte*>(at);
    return byte >= staging.memory().data() &&
           byte + numbers * 4 <= staging.memory().data() + staging.memory().size();
  }

  // Parts of what goes in, and of what comes out.
  static std::pair<std::int64_t, std::int64_t> parts_of(CommKind kind) {
    switch (kind) {
      case CommKind::all_gather: return {1, members};
      case CommKind::reduce_scatter: return {members, 1};
      case CommKind::all_to_all: return {members, members};
      case CommKind::send: return {1, 0};
      case CommKind::recv: return {0, 1};
      default: return {1, 1};
    }
  }
  // Carries it out on a wire that gives 1000 times the part's number and twice what went in there or, where
  // nothing goes in, minus where it is. Looks at what travels; returns in how many chunks.
  std::int64_t carry_out(const CommOp& op) {
    Staging staging(*device_, "dp", std::span(&op, 1), members);
    const auto [in_parts, out_parts] = parts_of(op.kind);
    std::int64_t first = 0, chunks = 0;
    raise(staging.exchange(op, [&, in = in_parts, out = out_parts](const CommOp& here) -> Status {
      const auto* const from = static_cast<const float*>(here.in);
      auto* const to = static_cast<float*>(here.out);
      Numbers given(static_cast<std::size_t>(here.count));
      for (std::int64_t part = 0; part < in; ++part) {
        EXPECT_TRUE(is_inside(staging, from + part * here.count, here.count));
        const auto source = static_cast<const float*>(op.in) - memory_ + part * op.count + first;
        EXPECT_EQ(std::memcmp(from + part * here.count, before_.data() + source,
                              static_cast<std::size_t>(here.count) * 4),
                  0)
            << "part " << part << " of chunk " << chunks;
      }
      for (std::int64_t i = 0; i < here.count; ++i)
        given[static_cast<std::size_t>(i)] = in > 0 ? 2 * from[i] : -static_cast<float>(first + i);
      for (std::int64_t part = 0; part < out; ++part) {
        EXPECT_TRUE(is_inside(staging, to + part * here.count, here.count));
        for (std::int64_t i = 0; i < here.count; ++i)
          to[part * here.count + i] = given[static_cast<std::size_t>(i)] + 1000 * static_cast<float>(part);
      }
      first += here.count;
      ++chunks;
      return {};
    }));
    EXPECT_EQ(first, op.count);
    return chunks;
  }
  Numbers expected(const CommOp& op) const {
    const auto [in, out] = parts_of(op.kind);
    Numbers numbers = before_;
    for (std::int64_t part = 0; part < out; ++part)
      for (std::int64_t i = 0; i < op.count; ++i) {
        const float given =
            in > 0 ? 2 * before_[static_cast<std::size_t>(static_cast<const float*>(op.in) - memory_ + i)]
                   : -static_cast<float>(i);
        numbers[static_cast<std::size_t>(static_cast<float*>(op.out) - memory_ + part * op.count + i)] =
            given + 1000 * static_cast<float>(part);
      }
    return numbers;
  }

  std::shared_ptr<DeviceInterface> device_;
  float* memory_ = nullptr;
  Numbers before_;
};

struct Case {
  CommKind kind;
  std::int64_t in, out;  // in parts; -1: it has none
  std::int64_t chunks;   // of the large one
};

// 9 MiB a part: in chunks of 4 MiB of the larger side.
const Case cases[] = {
    {CommKind::all_reduce, 0, 1, 3},     {CommKind::all_reduce, 1, 1, 3}, {CommKind::all_gather, 0, 1, 7},
    {CommKind::reduce_scatter, 0, 3, 7}, {CommKind::all_to_all, 0, 3, 7}, {CommKind::recv, -1, 1, 3},
    {CommKind::send, 1, -1, 3},
};

TEST_F(Staged, EveryKindReadsAndWritesWhatItShould) {
  for (const std::int64_t count : {small, large})
    for (const Case& tested : cases) {
      allocate(6 * count + 3);
      const auto at = [&](std::int64_t parts) { return parts < 0 ? -1 : parts * count + 1; };
      const CommOp done = op(tested.kind, count, at(tested.in), at(tested.out));
      EXPECT_EQ(carry_out(done), count == small ? 1 : tested.chunks) << name_of(tested.kind);
      EXPECT_EQ(after(), expected(done)) << name_of(tested.kind) << " of " << count;
    }
}

// What a member has of a gather is part of what it gets, and what it gets of a sum part of what it gave.
TEST_F(Staged, WhatIsInPlaceStaysInPlace) {
  for (const std::int64_t count : {small, large}) {
    allocate(4 * count);
    const CommOp gather = op(CommKind::all_gather, count, 2 * count, count),
                 scatter = op(CommKind::reduce_scatter, count, count, 2 * count);
    for (const CommOp& in_place : {gather, scatter}) {
      const StagedChunks chunks(in_place, members);
      for (std::int64_t i = 0; i < chunks.count(); ++i) {
        std::vector<std::byte> there(static_cast<std::size_t>(chunks.bytes()));
        const CommOp here = chunks.at(i, there.data());
        const auto* const in = static_cast<const float*>(here.in);
        EXPECT_EQ(in - static_cast<const float*>(here.out),
                  in_place.kind == CommKind::all_gather ? here.count : -here.count);
      }
      EXPECT_EQ(chunks.bytes(), members * chunks.elements(0) * 4);
    }
  }
}

// The root sends what lies where the others receive.
TEST_F(Staged, ABroadcastBringsWhatTheRootHas) {
  for (const std::int64_t count : {small, large}) {
    allocate(count + 4);
    const CommOp broadcast = op(CommKind::broadcast, count, -1, 4);
    Staging staging(*device_, "dp", std::span(&broadcast, 1), members);
    std::int64_t first = 0;
    raise(staging.exchange(broadcast, [&](const CommOp& here) -> Status {
      EXPECT_EQ(here.in, nullptr);
      EXPECT_EQ(std::memcmp(here.out, before_.data() + 4 + first, static_cast<std::size_t>(here.count) * 4),
                0);
      first += here.count;
      return {};
    }));
    EXPECT_EQ(first, count);
    EXPECT_EQ(after(), before_);
  }
}

// What another thread may be writing: to look there is a race, which is meant.
__attribute__((noinline, no_sanitize("thread"))) float look(const volatile float* at) { return *at; }

// A chunk is there while the one before it travels.
TEST_F(Staged, TheNextChunkIsCopiedWhileOneTravels) {
  allocate(2 * large);
  const CommOp sum = op(CommKind::all_reduce, large, 0, large);
  Staging staging(*device_, "dp", std::span(&sum, 1), members);
  const std::vector<CommOp> there = staging.operations(std::span(&sum, 1));
  ASSERT_EQ(there.size(), 3u);
  std::size_t chunk = 0;
  std::int64_t first = 0;
  raise(staging.exchange(sum, [&](const CommOp& here) -> Status {
    first += here.count;
    if (++chunk == there.size()) return {};
    const auto* const next = static_cast<const float*>(there[chunk].in);
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(4);
    while (look(next) != static_cast<float>(first + 1) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    EXPECT_EQ(look(next), static_cast<float>(first + 1)) << "chunk " << chunk;
    return {};
  }));
}

// Many operations, one after the other, and the memory of no more than two chunks.
TEST_F(Staged, OneOperationAfterTheOther) {
  allocate(2 * large);
  std::vector<CommOp> ops = {op(CommKind::all_reduce, large, 0, large),
                             op(CommKind::all_reduce, small, 0, large), op(CommKind::send, large, large, -1),
                             op(CommKind::recv, large, -1, 0)};
  Staging staging(*device_, "dp", ops, members);
  EXPECT_EQ(staging.memory().size(), std::size_t{8} << 20);
  for (int round = 0; round < 3; ++round)
    for (const CommOp& one : ops)
      raise(staging.exchange(one, [&](const CommOp& here) -> Status {
        if (here.out && !here.in) std::memset(here.out, 0, static_cast<std::size_t>(here.count) * 4);
        return {};
      }));
  const Numbers numbers = after();
  EXPECT_EQ(numbers.front(), 0);
  EXPECT_EQ(numbers[static_cast<std::size_t>(large) - 1], 0);
  // The third round summed what the second had made zero.
  EXPECT_EQ(numbers[static_cast<std::size_t>(large) + 1], 0);
}

// Nothing is copied after that, and nobody waits for ever.
TEST_F(Staged, AWireThatFailsEndsTheOperation) {
  allocate(2 * large);
  const CommOp sum = op(CommKind::all_reduce, large, 0, large);
  Staging staging(*device_, "dp", std::span(&sum, 1), members);
  for (const int fails_at : {0, 1, 2}) {
    int chunk = 0;
    const Status status = staging.exchange(sum, [&](const CommOp&) {
      return chunk++ == fails_at ? Status::failure(ErrorCode::comm_failed, "the peer is gone") : Status{};
    });
    EXPECT_EQ(chunk, fails_at + 1);
    EXPECT_THROW(raise(status), Error);
  }
  raise(staging.exchange(sum, [](const CommOp&) { return Status{}; }));
  Numbers summed = before_;
  std::copy(before_.begin(), before_.begin() + large, summed.begin() + large);
  EXPECT_EQ(after(), summed);
}

}  // namespace
}  // namespace prun::test::staging_test
