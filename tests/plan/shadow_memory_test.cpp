// Memory that remembers what it holds, who wrote it and who read it: without any program.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "plan/proof/shadow_memory.hpp"

namespace prun::test::shadow_memory_test {
namespace {

constexpr const char* fine = "";
constexpr std::int32_t first_queue = 0, second_queue = 1;
constexpr std::int64_t calls_a_step = 8;

Content weight(std::int64_t version = 0) { return {1, 2, -1, version}; }
Content result(std::int32_t microbatch, std::int64_t version = 0) { return {5, 2, microbatch, version}; }
Versions exactly(std::int64_t version, Counts count = Counts::steps) { return {version, version, count}; }

void expect_says(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// A range of 1,000 bytes from 0 on, of which the first 100 are kept from step to step; two queues.
class ShadowMemoryTest : public testing::Test {
 protected:
  ShadowMemoryTest() : layout(layout_of_one_range()), clocks({calls_a_step, calls_a_step}) {
    clocks.begin_step(0);
  }

  static prun::Layout layout_of_one_range() {
    prun::Layout layout;
    prun::Layout::Range& range = layout.ranges.emplace_back();
    range.memory.bytes[static_cast<std::size_t>(Region::slot)] = 1000;
    range.kept = 100;
    return layout;
  }

  // Every call has the next position of its queue.
  void call(std::int32_t queue, std::vector<Wait> waits = {}) {
    clocks.begin_call(queue, next_[static_cast<std::size_t>(queue)]++, waits);
  }
  void next_step() {
    clocks.begin_step(++step_);
    next_ = {0, 0};
  }

  template <class Body>
  static std::string refusal(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return fine;
  }
  std::string written(std::int64_t at, std::int64_t size, const Content& content) {
    return refusal([&] { memory.write(at, size, content, "writer"); });
  }
  std::string read(std::int64_t at, std::int64_t size, const Content& content, Versions versions) {
    return refusal([&] { memory.read(at, size, content, versions, "reader"); });
  }
  std::string read(std::int64_t at, std::int64_t size, const Content& content) {
    return read(at, size, content, exactly(content.version));
  }

  prun::Layout layout;
  QueueClocks clocks;
  ShadowMemory memory{layout, clocks, [](const Content& content) {
                        return content.value == none ? std::string("nothing")
                                                     : detail::concat("value ", content.value,
                                                                      " of microbatch ", content.microbatch);
                      }};

 private:
  std::array<std::int32_t, 2> next_{0, 0};
  std::int64_t step_ = 0;
};

// ---------------------------------------------------------------- what bytes hold

TEST_F(ShadowMemoryTest, HoldsWhatWasWrittenThere) {
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(3)), fine);
  EXPECT_EQ(read(100, 50, result(3)), fine);
  EXPECT_EQ(read(110, 20, result(3)), fine);
  EXPECT_EQ(
      read(100, 50, result(4)),
      "plan check: op 'reader' wants value 5 of microbatch 4 but its bytes hold value 5 of microbatch 3");
}

TEST_F(ShadowMemoryTest, BytesThatNobodyWroteHoldNothing) {
  call(first_queue);
  EXPECT_EQ(read(0, 10, weight()),
            "plan check: op 'reader' wants value 1 of microbatch -1 but its bytes hold nothing");
  EXPECT_EQ(written(100, 50, result(3)), fine);
  expect_says(read(100, 51, result(3)), "hold nothing");
  expect_says(read(99, 51, result(3)), "hold nothing");
}

TEST_F(ShadowMemoryTest, WhatWasThereBeforeTheFirstStepIsReadBehindNobody) {
  memory.put(0, 40, weight());
  call(second_queue);
  EXPECT_EQ(read(0, 40, weight()), fine);
}

TEST_F(ShadowMemoryTest, DeadBytesAreNotRead) {
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(3)), fine);
  EXPECT_EQ(written(120, 10, {none, -3, -3}), fine);  // as steps release what nobody reads any more
  EXPECT_EQ(read(100, 20, result(3)), fine);
  expect_says(read(100, 50, result(3)), "hold nothing");
  expect_says(read(120, 10, result(3)), "hold nothing");
  EXPECT_EQ(read(130, 20, result(3)), fine);
}

TEST_F(ShadowMemoryTest, AWriteTakesItsBytesFromAllThatItOverlaps) {
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(0)), fine);
  EXPECT_EQ(written(150, 50, result(1)), fine);
  EXPECT_EQ(written(140, 20, result(2)), fine);
  EXPECT_EQ(read(100, 40, result(0)), fine);
  EXPECT_EQ(read(140, 20, result(2)), fine);
  EXPECT_EQ(read(160, 40, result(1)), fine);
  expect_says(read(100, 50, result(0)), "hold value 5 of microbatch 2");
  expect_says(read(150, 50, result(1)), "hold value 5 of microbatch 2");
}

TEST_F(ShadowMemoryTest, OneReadCoversWhatSeveralWritesLeft) {
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(0)), fine);
  EXPECT_EQ(written(150, 50, result(0)), fine);
  EXPECT_EQ(read(120, 60, result(0)), fine);
}

TEST_F(ShadowMemoryTest, WritesStayWithinTheLayout) {
  call(first_queue);
  EXPECT_EQ(written(950, 50, result(0)), fine);
  EXPECT_EQ(written(950, 51, result(0)), "plan check: op 'writer' writes outside the arena: [950, 1001)");
  EXPECT_EQ(written(2000, 0, result(0)), fine);  // no bytes at all
}

// ---------------------------------------------------------------- versions

TEST_F(ShadowMemoryTest, AReaderSaysWhichVersionsItTakes) {
  memory.put(0, 40, weight(3));
  call(first_queue);
  EXPECT_EQ(read(0, 40, weight(), {2, 3, Counts::updates}), fine);
  EXPECT_EQ(
      read(0, 40, weight(), exactly(4, Counts::updates)),
      "plan check: op 'reader' reads value 1 of microbatch -1 as of update 3 where it wants that of update "
      "4: it is stale");
  EXPECT_EQ(
      read(0, 40, weight(), exactly(2, Counts::steps)),
      "plan check: op 'reader' reads value 1 of microbatch -1 as of step 3 where it wants that of step 2: "
      "it is ahead");
}

TEST_F(ShadowMemoryTest, AReadTellsTheOldestVersionThatItFound) {
  memory.put(0, 10, weight(3));
  memory.put(10, 10, weight(1));
  memory.put(20, 10, weight(2));
  call(first_queue);
  EXPECT_EQ(memory.read(0, 30, weight(), {0, 9, Counts::updates}, "reader"), 1);
  EXPECT_EQ(memory.read(20, 10, weight(), {0, 9, Counts::updates}, "reader"), 2);
}

TEST_F(ShadowMemoryTest, ASumBeginsWhereItHasNoContributionsOfThisStep) {
  memory.put(0, 40, weight(0));
  EXPECT_EQ(refusal([&] { memory.check_begins(0, 40, weight(1), "adds"); }), fine);
  EXPECT_EQ(
      refusal([&] { memory.check_begins(20, 10, weight(0), "adds"); }),
      "plan check: op 'adds' begins the sum value 1 of microbatch -1, which holds contributions already");
}

// ---------------------------------------------------------------- slots

TEST_F(ShadowMemoryTest, ASlotMovesFromMicrobatchToMicrobatch) {
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
    const std::int64_t at = 100 + microbatch % 2 * 50;
    call(first_queue);
    EXPECT_EQ(written(at, 50, result(microbatch)), fine);
    EXPECT_EQ(read(at, 50, result(microbatch)), fine);
    if (microbatch > 0) {
      EXPECT_EQ(read(250 - at, 50, result(microbatch - 1)), fine);
    }
    if (microbatch > 1) {
      expect_says(read(at, 50, result(microbatch - 2)), "but its bytes hold");
    }
  }
}

TEST_F(ShadowMemoryTest, WhatIsNotKeptIsForgottenBetweenSteps) {
  memory.put(0, 100, weight());
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(0)), fine);
  memory.forget_what_is_not_kept();
  next_step();
  call(first_queue);
  EXPECT_EQ(read(0, 100, weight()), fine);
  expect_says(read(100, 50, result(0)), "hold nothing");
}

// ---------------------------------------------------------------- queues

TEST_F(ShadowMemoryTest, AReaderOnAnotherQueueWaitsForTheWriter) {
  call(first_queue);
  EXPECT_EQ(written(100, 50, result(0)), fine);
  call(second_queue);
  EXPECT_EQ(
      read(100, 50, result(0)),
      "plan check: op 'reader' reads value 5 of microbatch 0 without waiting for the queue that writes it");
  call(second_queue, {{first_queue, 0, 0}});
  EXPECT_EQ(read(100, 50, result(0)), fine);
  call(second_queue);  // behind one that waited
  EXPECT_EQ(read(100, 50, result(0)), fine);
}

TEST_F(ShadowMemoryTest, AWriterOnAnotherQueueWaitsForEveryReader) {
  memory.put(100, 50, result(0));
  call(first_queue);
  EXPECT_EQ(read(120, 10, result(0)), fine);
  call(first_queue);
  EXPECT_EQ(read(120, 10, result(0)), fine);
  call(second_queue, {{first_queue, 0, 0}});  // the first reader, not the second
  EXPECT_EQ(written(100, 20, result(1)), fine);
  EXPECT_EQ(written(100, 50, result(1)),
            "plan check: op 'writer' overwrites value 5 of microbatch 0 while another queue may use it");
  call(second_queue, {{first_queue, 1, 0}});
  EXPECT_EQ(written(100, 50, result(1)), fine);
}

TEST_F(ShadowMemoryTest, AWaitReachesBackIntoTheStepBefore) {
  call(first_queue);
  EXPECT_EQ(written(0, 50, weight(0)), fine);
  next_step();
  call(second_queue);
  expect_says(read(0, 50, weight(0)), "without waiting");
  call(second_queue, {{first_queue, 0, 1}});
  EXPECT_EQ(read(0, 50, weight(0)), fine);
}

TEST_F(ShadowMemoryTest, WaitsForWhatHasNotBegunAreRefused) {
  EXPECT_EQ(refusal([&] {
              call(second_queue, {{first_queue, 0, 0}});
            }),
            "plan check: a call waits for one that comes later in the order");
  EXPECT_EQ(refusal([&] { clocks.begin_call(first_queue, calls_a_step, {}); }),
            "plan check: a call has a place that its queue, of 8 calls a step, does not have");
  EXPECT_EQ(refusal([&] { call(second_queue, {{first_queue, 0, 1}}); }), fine);  // before the first step
}

}  // namespace
}  // namespace prun::test::shadow_memory_test
