// Operations through pinned memory, on a device whose memory the host cannot touch.
#include "execute/staging.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

constexpr std::int64_t members = 3, count = 5;
constexpr std::int64_t whole = 64;  // numbers of the device's memory

class Staged : public testing::Test {
 protected:
  void SetUp() override {
    device_ = plugins().create<DeviceInterface>("device",
                                                tiny_recipe({"device.plugin=cpu-async"}).section("device"));
    void* memory = nullptr;
    raise(device_->allocate(Space::device, whole * 4, &memory));
    memory_ = static_cast<float*>(memory);
    std::iota(before_.begin(), before_.end(), 1.0f);
    raise(device_->upload(memory_, before_.data(), whole * 4));
  }
  void TearDown() override { raise(device_->release(Space::device, memory_, whole * 4)); }

  CommOp op(CommKind kind, std::int64_t in, std::int64_t out) const {
    CommOp op;
    op.kind = kind;
    op.dtype = DType::f32;
    op.count = count;
    if (in >= 0) op.in = memory_ + in;
    if (out >= 0) op.out = memory_ + out;
    return op;
  }
  // Brings it, negates `written` numbers of what it writes, and takes it back. What the device then has.
  std::vector<float> run(const CommOp& op, std::int64_t read, std::int64_t written) {
    raise(device_->upload(memory_, before_.data(), whole * 4));
    const Staging staging(*device_, std::span(&op, 1), members);
    const CommOp here = staging.staged(op);
    raise(staging.bring(op));
    const auto inside = [&](const void* at, std::int64_t numbers) {
      const auto* byte = static_cast<const std::byte*>(at);
      return byte >= staging.memory().data() &&
             byte + numbers * 4 <= staging.memory().data() + staging.memory().size();
    };
    if (op.in) {
      EXPECT_TRUE(inside(here.in, read));
      const float* const expected = before_.data() + (static_cast<const float*>(op.in) - memory_);
      EXPECT_EQ(std::memcmp(here.in, expected, static_cast<std::size_t>(read) * 4), 0);
    }
    auto* const out = static_cast<float*>(here.out);
    if (op.out) {
      EXPECT_TRUE(inside(out, written));
      for (std::int64_t i = 0; i < written; ++i) out[i] = -static_cast<float>(i) - 1;
    }
    raise(staging.take(op));
    std::vector<float> after(whole);
    raise(device_->download(after.data(), memory_, whole * 4));
    return after;
  }
  // The same with -1, -2, ... from `at` on.
  std::vector<float> negated(std::int64_t at, std::int64_t numbers) const {
    std::vector<float> expected(before_.begin(), before_.end());
    for (std::int64_t i = 0; i < numbers; ++i)
      expected[static_cast<std::size_t>(at + i)] = -static_cast<float>(i) - 1;
    return expected;
  }

  std::shared_ptr<DeviceInterface> device_;
  float* memory_ = nullptr;
  std::array<float, whole> before_{};
};

TEST_F(Staged, EveryKindReadsAndWritesWhatItShould) {
  EXPECT_EQ(run(op(CommKind::all_reduce, 0, 10), count, count), negated(10, count));
  EXPECT_EQ(run(op(CommKind::all_gather, 0, 10), count, members * count), negated(10, members * count));
  EXPECT_EQ(run(op(CommKind::reduce_scatter, 0, 30), members * count, count), negated(30, count));
  EXPECT_EQ(run(op(CommKind::all_to_all, 0, 30), members * count, members * count),
            negated(30, members * count));
  EXPECT_EQ(run(op(CommKind::recv, -1, 7), 0, count), negated(7, count));
  EXPECT_EQ(run(op(CommKind::send, 3, -1), count, 0), negated(0, 0));
}

// In its place as where it was: what a member has of a gather is part of what it gets.
TEST_F(Staged, WhatIsInPlaceStaysInPlace) {
  const CommOp gather = op(CommKind::all_gather, 20, 10), scatter = op(CommKind::reduce_scatter, 10, 15);
  for (const CommOp& in_place : {gather, scatter}) {
    const Staging staging(*device_, std::span(&in_place, 1), members);
    const CommOp here = staging.staged(in_place);
    EXPECT_EQ(static_cast<const float*>(here.in) - static_cast<const float*>(here.out),
              static_cast<const float*>(in_place.in) - static_cast<const float*>(in_place.out));
    EXPECT_EQ(staging.memory().size(), static_cast<std::size_t>(members * count * 4));
  }
  EXPECT_EQ(run(gather, count, members * count), negated(10, members * count));
}

// The root sends what lies where the others receive.
TEST_F(Staged, ABroadcastBringsWhatTheRootHas) {
  const CommOp broadcast = op(CommKind::broadcast, -1, 4);
  const Staging staging(*device_, std::span(&broadcast, 1), members);
  raise(staging.bring(broadcast));
  EXPECT_EQ(std::memcmp(staging.staged(broadcast).out, before_.data() + 4, count * 4), 0);
  EXPECT_EQ(run(broadcast, 0, count), negated(4, count));
}

}  // namespace
}  // namespace prun::test
