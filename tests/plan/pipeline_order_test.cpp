// Schedules: what the built-in ones cost, against values that were counted elsewhere and against the
// formulas; and that no wrong one gets through.
#include "plan/pipeline/read_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "plan/pipeline/timing.hpp"
#include "plugin_check/kind_checks.hpp"
#include "support/assembly_fixture.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun::test::pipeline_order_test {
namespace {

std::shared_ptr<ScheduleInterface> builtin(const std::string& name) {
  return plugins().create<ScheduleInterface>("schedule", name, OptionsApi{});
}

PipelineOrder order_of(const std::string& name, const ScheduleShape& shape) {
  return read_schedule(*builtin(name), shape, schedule_traits(plugins().note("schedule", name)), name);
}

PipelineTiming timing_of(const std::string& name, const ScheduleShape& shape, const PassCosts& costs = {}) {
  return time_schedule(order_of(name, shape), costs);
}

// ---------------------------------------------------------------- known values

struct Golden {
  const char* name;
  ScheduleShape shape;
  double makespan;
  double idle;  // the same on every rank
  std::vector<double> inner_idle;
  std::vector<std::int32_t> peak;
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << describe(golden.name, golden.shape); }

class KnownSchedule : public testing::TestWithParam<Golden> {};

TEST_P(KnownSchedule, HasItsMakespanIdleTimeAndPeaks) {
  const Golden& expected = GetParam();
  const PipelineTiming timing = timing_of(expected.name, expected.shape);
  EXPECT_EQ(timing.makespan, expected.makespan);
  EXPECT_EQ(timing.idle, std::vector<double>(expected.inner_idle.size(), expected.idle));
  EXPECT_EQ(timing.inner_idle, expected.inner_idle);
  EXPECT_EQ(timing.peak, expected.peak);
}

// Every pass of a chunk takes 1, so a whole backward takes 2.
INSTANTIATE_TEST_SUITE_P(
    UnitCosts, KnownSchedule,
    testing::Values(Golden{"gpipe", {4, 1, 1}, 12, 9, {9, 6, 3, 0}, {1, 1, 1, 1}},
                    Golden{"gpipe", {4, 2, 1}, 15, 9, {9, 6, 3, 0}, {2, 2, 2, 2}},
                    Golden{"gpipe", {4, 8, 1}, 33, 9, {9, 6, 3, 0}, {8, 8, 8, 8}},
                    Golden{"1f1b", {2, 4, 1}, 15, 3, {3, 0}, {2, 1}},
                    Golden{"1f1b", {3, 6, 1}, 24, 6, {6, 3, 0}, {3, 2, 1}},
                    Golden{"1f1b", {4, 2, 1}, 15, 9, {9, 6, 3, 0}, {2, 2, 2, 1}},
                    Golden{"1f1b", {4, 8, 1}, 33, 9, {9, 6, 3, 0}, {4, 3, 2, 1}},
                    Golden{"1f1b", {4, 16, 1}, 57, 9, {9, 6, 3, 0}, {4, 3, 2, 1}},
                    Golden{
                        "1f1b", {8, 16, 1}, 69, 21, {21, 18, 15, 12, 9, 6, 3, 0}, {8, 7, 6, 5, 4, 3, 2, 1}},
                    Golden{"interleaved", {2, 4, 2}, 27, 3, {3, 0}, {5, 3}},
                    Golden{"interleaved", {3, 6, 2}, 42, 6, {6, 3, 0}, {8, 6, 4}},
                    Golden{"interleaved", {3, 6, 3}, 60, 6, {6, 3, 0}, {11, 9, 7}},
                    Golden{"interleaved", {4, 4, 2}, 33, 9, {9, 6, 3, 0}, {8, 8, 7, 5}},
                    Golden{"interleaved", {4, 8, 2}, 57, 9, {9, 6, 3, 0}, {11, 9, 7, 5}},
                    Golden{"interleaved", {4, 8, 4}, 105, 9, {9, 6, 3, 0}, {19, 17, 15, 13}},
                    Golden{"zb-h1", {2, 4, 1}, 13, 1, {1, 0}, {2, 2}},
                    Golden{"zb-h1", {4, 8, 1}, 27, 3, {3, 2, 1, 0}, {4, 4, 4, 4}},
                    Golden{"zb-h1", {4, 16, 1}, 51, 3, {3, 2, 1, 0}, {4, 4, 4, 4}},
                    Golden{"zb-h1", {4, 2, 1}, 11, 5, {5, 4, 2, 0}, {2, 2, 2, 2}},
                    Golden{"zb-v", {2, 4, 2}, 25, 1, {0, 0}, {4, 4}},
                    Golden{"zb-v", {4, 8, 2}, 51, 3, {0, 0, 0, 0}, {8, 8, 8, 8}},
                    Golden{"zb-v", {4, 16, 2}, 99, 3, {0, 0, 0, 0}, {8, 8, 8, 8}},
                    Golden{"zb-v", {4, 4, 2}, 30, 6, {6, 4, 2, 0}, {5, 6, 7, 8}}));

TEST(Schedules, HaveTheirIdleTimeWherePassesTakeDifferentlyLong) {
  const PassCosts near{3, 4, 2, 0}, far{10, 12, 8, 0}, odd{10, 11, 9, 0};
  using Times = std::vector<double>;
  EXPECT_EQ(timing_of("1f1b", {4, 8, 1}, near).idle, Times(4, 27));
  EXPECT_EQ(timing_of("zb-h1", {4, 8, 1}, near).inner_idle, (Times{15, 10, 5, 0}));
  EXPECT_EQ(timing_of("1f1b", {8, 32, 1}, far).idle, Times(8, 210));
  EXPECT_EQ(timing_of("zb-h1", {8, 32, 1}, far).idle, Times(8, 98));
  EXPECT_EQ(timing_of("zb-v", {4, 8, 2}, near).idle, Times(4, 12));
  EXPECT_EQ(timing_of("zb-v", {4, 8, 2}, near).inner_idle, (Times{12, 9, 6, 3}));
  EXPECT_EQ(timing_of("zb-v", {4, 8, 2}, odd).idle, Times(4, 33));
  EXPECT_EQ(timing_of("zb-v", {4, 8, 2}, odd).inner_idle, (Times{12, 9, 6, 3}));
}

// ---------------------------------------------------------------- formulas

// All shapes of 2 to 8 ranks with 1 to 4 rounds of microbatches; costs in which no two sums agree.
void for_each_shape(const std::function<void(std::int32_t ranks, std::int32_t microbatches)>& body) {
  for (std::int32_t ranks = 2; ranks <= 8; ++ranks)
    for (std::int32_t microbatches = ranks; microbatches <= 4 * ranks; ++microbatches)
      body(ranks, microbatches);
}

constexpr PassCosts uneven{5, 7, 4, 0};
constexpr double uneven_backward = 11;

TEST(Schedules, GPipeAndOneForwardOneBackwardAreIdleForTheSameTime) {
  for_each_shape([](std::int32_t p, std::int32_t m) {
    const std::vector<double> idle(static_cast<std::size_t>(p), (p - 1) * (5 + uneven_backward));
    const PipelineTiming gpipe = timing_of("gpipe", {p, m, 1}, uneven);
    const PipelineTiming one = timing_of("1f1b", {p, m, 1}, uneven);
    EXPECT_EQ(gpipe.idle, idle) << p << ' ' << m;
    EXPECT_EQ(one.idle, idle) << p << ' ' << m;
    for (std::int32_t rank = 0; rank < p; ++rank) {
      EXPECT_EQ(gpipe.peak[static_cast<std::size_t>(rank)], m);
      EXPECT_EQ(one.peak[static_cast<std::size_t>(rank)], std::min(p - rank, m));
    }
  });
}

TEST(Schedules, InterleavedIsIdleForAChunkInsteadOfAStage) {
  for_each_shape([](std::int32_t p, std::int32_t m) {
    if (m % p != 0) return;
    for (std::int32_t v = 2; v <= 4; ++v) {
      const PipelineTiming timing = timing_of("interleaved", {p, m, v}, uneven);
      for (std::int32_t rank = 0; rank < p; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        EXPECT_EQ(timing.idle[index], (p - 1) * (5 + uneven_backward)) << p << ' ' << m << ' ' << v;
        EXPECT_EQ(timing.peak[index], std::min(2 * (p - 1 - rank) + (v - 1) * p + 1, m * v));
      }
    }
  });
}

TEST(Schedules, ZeroBubbleH1IsIdleForForwardAndInputLessWeight) {
  for_each_shape([](std::int32_t p, std::int32_t m) {
    const PipelineTiming timing = timing_of("zb-h1", {p, m, 1}, uneven);
    EXPECT_EQ(timing.idle, std::vector<double>(static_cast<std::size_t>(p), (p - 1) * (5 + 7 - 4)))
        << p << ' ' << m;
    EXPECT_EQ(timing.peak, std::vector<std::int32_t>(static_cast<std::size_t>(p), p)) << p << ' ' << m;
  });
}

TEST(Schedules, ZeroBubbleVHasNoInnerIdleTimeFromTwiceTheRanksLessOneOn) {
  for_each_shape([](std::int32_t p, std::int32_t m) {
    const PipelineTiming timing = timing_of("zb-v", {p, m, 2});
    if (m < 2 * p - 1) return;
    EXPECT_EQ(timing.inner_idle, std::vector<double>(static_cast<std::size_t>(p), 0)) << p << ' ' << m;
    EXPECT_EQ(timing.peak, std::vector<std::int32_t>(static_cast<std::size_t>(p), 2 * p)) << p << ' ' << m;
    EXPECT_EQ(timing.makespan, 6 * m + p - 1) << p << ' ' << m;
  });
  for (std::int32_t p = 2; p <= 4; ++p) EXPECT_GT(timing_of("zb-v", {p, 2 * p - 2, 2}).inner_idle[0], 0);
}

// Of all shapes that have one, what `prun plan` shows beside the drawn order.
TEST(Schedules, HaveTheBubbleThatTheySay) {
  int told = 0;
  const auto check = [&](const char* name, const ScheduleShape& shape) {
    const PipelineOrder order = order_of(name, shape);
    if (!order.theory) return;
    EXPECT_NEAR(bubble_of(order), order.theory->share, 1e-12) << describe(name, shape);
    ++told;
  };
  for_each_shape([&](std::int32_t p, std::int32_t m) {
    for (const char* name : {"gpipe", "1f1b", "zb-h1"}) check(name, {p, m, 1});
    if (m >= p) check("2bw", {p, m, 1});
    if (m == 1) check("pipedream", {p, m, 1});
    check("zb-v", {p, m, 2});
    for (std::int32_t v = 2; v <= 4 && m % p == 0; ++v) check("interleaved", {p, m, v});
  });
  EXPECT_GT(told, 400);
}

TEST(Schedules, AreFullyBusyOnOneRank) {
  for (const auto& [name, chunks] :
       {std::pair{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 3}, {"zb-h1", 1}, {"zb-v", 2}})
    for (std::int32_t m = 1; m <= 8; ++m)
      EXPECT_EQ(timing_of(name, {1, m, chunks}).idle, std::vector<double>{0}) << name << ' ' << m;
}

TEST(Schedules, CanDoWhatTheyDoNotRefuse) {
  int read = 0;
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
    for (std::int32_t p = 1; p <= 8; ++p)
      for (std::int32_t m = 1; m <= 20; ++m)
        for (std::int32_t v = 1; v <= 4; ++v) {
          if (!schedule_problem(*builtin(name), {p, m, v}, name).empty()) continue;
          EXPECT_NO_THROW(order_of(name, {p, m, v})) << describe(name, {p, m, v});
          ++read;
        }
  EXPECT_EQ(read, 4 * 160 + 3 * (20 + 10 + 6 + 5 + 4 + 3 + 2 + 2));
}

TEST(Schedules, GiveTheSameOrderEveryTime) {
  for (const auto& [name, chunks] :
       {std::pair{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 3}, {"zb-h1", 1}, {"zb-v", 2}}) {
    const PipelineOrder first = order_of(name, {4, 8, chunks}), second = order_of(name, {4, 8, chunks});
    EXPECT_EQ(first.calls, second.calls) << name;
    EXPECT_EQ(first.stages, second.stages) << name;
    EXPECT_EQ(draw(first, time_schedule(first, uneven), 100),
              draw(second, time_schedule(second, uneven), 100));
  }
}

TEST(Schedules, ATransferDelaysTheOtherRankAlone) {
  // Down and up again: a transfer each way.
  EXPECT_EQ(timing_of("1f1b", {2, 1, 1}, {1, 1, 1, 0.5}).makespan, 7);
  // On a V the turn lies within a rank: stages 0 | 1 2 | 3, there and back.
  EXPECT_EQ(timing_of("zb-v", {2, 1, 2}, {1, 1, 1, 0}).makespan + 4 * 0.5,
            timing_of("zb-v", {2, 1, 2}, {1, 1, 1, 0.5}).makespan);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "(no error)";
}

TEST(Schedules, SayWhatToChangeInAShapeTheyCannotDo) {
  const auto problem = [](const std::string& name, const ScheduleShape& shape) {
    return refusal([&] { order_of(name, shape); });
  };
  EXPECT_EQ(problem("interleaved", {4, 6, 2}),
            "schedule 'interleaved' (4 ranks, 6 microbatches, 2 chunks): interleaved takes microbatches in "
            "rounds of 4, one a rank, and 6 is no multiple of that; change the batch or take 1f1b");
  EXPECT_NE(problem("interleaved", {4, 8, 1}).find("at least 2 chunks"), std::string::npos);
  EXPECT_NE(problem("gpipe", {4, 8, 2}).find("set chunks to 1"), std::string::npos);
  EXPECT_NE(problem("1f1b", {4, 8, 2}).find("take the schedule interleaved"), std::string::npos);
  EXPECT_NE(problem("zb-h1", {4, 8, 2}).find("schedule zb-v"), std::string::npos);
  EXPECT_NE(problem("zb-v", {4, 8, 3}).find("set chunks to 2"), std::string::npos);
  EXPECT_NE(problem("gpipe", {0, 8, 1}).find("must be 1 to"), std::string::npos);
  EXPECT_NE(problem("gpipe", {1 << 20, 1 << 20, 1}).find("more than"), std::string::npos);
}

// ---------------------------------------------------------------- drawing

TEST(Drawing, ShowsWhoRunsWhatWhen) {
  const PipelineOrder order = order_of("1f1b", {2, 3, 1});
  EXPECT_EQ(draw(order, time_schedule(order, {}), 50),
            "rank 0  F0-F1-......B0----F2-B1----...B2----\n"
            "rank 1  ...F0-B0----F1-B1----F2-B2----......\n");
}

TEST(Drawing, NamesTheChunkAndTheWeightPass) {
  const PipelineOrder order = order_of("zb-v", {1, 1, 2});
  EXPECT_EQ(draw(order, time_schedule(order, {}), 40), "rank 0  0F0--1F0--1B0--1W0--0B0--0W0--\n");
}

TEST(Drawing, KeepsAChunkApartFromTheNumberBeforeIt) {
  const PipelineOrder order = order_of("zb-v", {1, 1, 2});
  EXPECT_EQ(draw(order, time_schedule(order, {}), 26), "rank 0  F--F--B--W--B--W--\n");
}

TEST(Drawing, NeverShowsHalfANumberNorMoreThanTheWidth) {
  const PipelineOrder order = order_of("gpipe", {2, 12, 1});
  const std::string narrow = draw(order, time_schedule(order, {}), 47);
  EXPECT_EQ(narrow.substr(0, narrow.find('\n')), "rank 0  FFFFFFFFFFFF...B0B1B2B3B4B5B6B7B8B9B-B-");
  for (int width = 1; width < 200; ++width) {
    const std::string text = draw(order, time_schedule(order, {}), width);
    EXPECT_LE(static_cast<int>(text.find('\n')), std::max(width, 9));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  }
}

// ---------------------------------------------------------------- wrong schedules

// Two ranks, two microbatches, one chunk: 1F1B until a test changes it.
class Scripted final : public ScheduleInterface {
 public:
  using Calls = std::vector<ScheduleCall>;
  std::vector<Calls> calls = {{forward(0), forward(1), backward(0), backward(1)},
                              {forward(0), backward(0), forward(1), backward(1)}};
  std::function<std::int32_t(std::int32_t rank, std::int32_t chunk)> place =
      [](std::int32_t rank, std::int32_t chunk) { return 2 * chunk + rank; };

  static ScheduleCall forward(std::int32_t microbatch) { return {Pass::forward, 0, microbatch}; }
  static ScheduleCall backward(std::int32_t microbatch) { return {Pass::backward, 0, microbatch}; }
  static ScheduleCall input(std::int32_t microbatch) { return {Pass::backward_input, 0, microbatch}; }
  static ScheduleCall weight(std::int32_t microbatch) { return {Pass::backward_weight, 0, microbatch}; }

  Text refusal, formula;
  double share = 0;
  bool null_calls = false;

  Status problem(const ScheduleShape&, Text* text) noexcept override {
    *text = refusal;
    return {};
  }
  Status stage(const ScheduleShape&, std::int32_t rank, std::int32_t chunk,
               std::int32_t* stage) noexcept override {
    return guard([&] { *stage = place(rank, chunk); });
  }
  Status order(const ScheduleShape&, std::int32_t rank, Array<ScheduleCall>* answer) noexcept override {
    const Calls& list = calls[static_cast<std::size_t>(rank)];
    *answer = {null_calls ? nullptr : list.data(), list.size()};
    return {};
  }
  Status bubble(const ScheduleShape&, Text* text, double* of_step) noexcept override {
    *text = formula;
    *of_step = share;
    return {};
  }
};

// GPipe's order, and a bubble that it does not have.
class Boasting final : public Schedule {
 public:
  explicit Boasting(const Options&) {}
  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t) override {
    std::vector<ScheduleCall> calls;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (std::int32_t i = 0; i < shape.microbatches; ++i) calls.push_back({pass, 0, i});
    return calls;
  }
  std::string problem(const ScheduleShape& shape) override { return shape.chunks == 1 ? "" : "no"; }
  std::optional<Bubble> bubble(const ScheduleShape&) override { return Bubble{"0", 0}; }
};

TEST(Schedules, OneThatBoastsIsFoundOut) {
  const OptionsApi none{};
  ScheduleAdapter<Boasting> schedule{Options(none)};
  EXPECT_EQ(
      refusal([&] { try_schedule(schedule, {}, "mine"); }),
      "schedule 'mine' (2 ranks, 1 microbatch, 1 chunk): bubble() says 0 = 0 of a step, and its order is "
      "idle for 0.5");
}

class WrongSchedule : public testing::Test {
 protected:
  // What is said after the schedule's name.
  std::string verdict(bool split = false, const ScheduleShape& shape = {2, 2, 1}) {
    const std::string text = refusal([&] { read_schedule(schedule_, shape, {split}, "mine"); });
    const std::string title = describe("mine", shape) + ": ";
    return text.rfind(title, 0) == 0 ? text.substr(title.size()) : text;
  }
  Scripted::Calls& first() { return schedule_.calls[0]; }
  Scripted::Calls& second() { return schedule_.calls[1]; }
  // Both ranks with split backwards.
  void split_all() {
    for (Scripted::Calls& calls : schedule_.calls) {
      Scripted::Calls split;
      for (const ScheduleCall& call : calls) {
        split.push_back(call.pass == Pass::forward ? call : Scripted::input(call.microbatch));
        if (call.pass == Pass::backward) split.push_back(Scripted::weight(call.microbatch));
      }
      calls = split;
    }
  }

  Scripted schedule_;
};

TEST_F(WrongSchedule, IsNotTheOneWeStartFrom) {
  EXPECT_EQ(verdict(), "(no error)");
  split_all();
  EXPECT_EQ(verdict(true), "(no error)");
}

TEST_F(WrongSchedule, ACallIsMissing) {
  second().pop_back();
  EXPECT_EQ(verdict(), "rank 1: backward of chunk 0, microbatch 1, is missing");
  second().clear();
  EXPECT_EQ(verdict(), "rank 1: forward of chunk 0, microbatch 0, is missing");
}

TEST_F(WrongSchedule, ACallStandsTwice) {
  second().push_back(Scripted::backward(0));
  EXPECT_EQ(verdict(), "rank 1: call 4, backward of chunk 0, microbatch 0, is the same as call 1");
}

TEST_F(WrongSchedule, BackwardBeforeForward) {
  std::swap(first()[1], first()[3]);
  EXPECT_EQ(verdict(),
            "rank 0: call 1, backward of chunk 0, microbatch 1, comes before the forward it needs");
}

TEST_F(WrongSchedule, WeightBeforeInput) {
  split_all();
  std::swap(second()[1], second()[2]);
  EXPECT_EQ(
      verdict(true),
      "rank 1: call 1, backward_weight of chunk 0, microbatch 0, comes before the backward_input it needs");
}

TEST_F(WrongSchedule, AChunkOrMicrobatchThatIsNotThere) {
  first()[0].chunk = 1;
  EXPECT_EQ(
      verdict(),
      "rank 0: call 0, forward of chunk 1, microbatch 0, is of a chunk the rank does not have (0 to 0)");
  first()[0] = Scripted::forward(-1);
  EXPECT_EQ(
      verdict(),
      "rank 0: call 0, forward of chunk 0, microbatch -1, is of a microbatch that is not there (0 to 1)");
}

TEST_F(WrongSchedule, APassThatDoesNotFitItsTrait) {
  EXPECT_EQ(verdict(true),
            "rank 0: call 2, backward of chunk 0, microbatch 0, does not fit its trait backward=split");
  split_all();
  EXPECT_EQ(verdict(false),
            "rank 0: call 2, backward_input of chunk 0, microbatch 0, does not fit its trait backward=whole");
  first()[2].pass = static_cast<Pass>(77);
  EXPECT_EQ(verdict(true), "rank 0: call 2 has pass number 77, there are 0 to 3");
}

TEST_F(WrongSchedule, StagesThatAreNoPermutation) {
  schedule_.place = [](std::int32_t, std::int32_t) { return 1; };
  EXPECT_EQ(verdict(), "rank 1: chunk 0 is stage 1, which is chunk 0 of rank 0 already");
  schedule_.place = [](std::int32_t rank, std::int32_t) { return rank + 1; };
  EXPECT_EQ(verdict(), "rank 1: chunk 0 is stage 2, and stages go from 0 to 1");
  schedule_.place = [](std::int32_t rank, std::int32_t) { return -rank; };
  EXPECT_EQ(verdict(), "rank 1: chunk 0 is stage -1, and stages go from 0 to 1");
}

TEST_F(WrongSchedule, RanksThatWaitForEachOther) {
  // Rank 0 wants microbatch 0 back before it sends 1, rank 1 wants 1 before it gives 0 back.
  first() = {Scripted::forward(0), Scripted::backward(0), Scripted::forward(1), Scripted::backward(1)};
  second() = {Scripted::forward(0), Scripted::forward(1), Scripted::backward(0), Scripted::backward(1)};
  EXPECT_EQ(
      verdict(),
      "rank 0: call 1, backward of chunk 0, microbatch 0, waits forever for the backward of stage 1, which "
      "rank 1 has only after its call 1, forward of chunk 0, microbatch 1, and that waits too");
}

TEST_F(WrongSchedule, ARankThatWaitsForItself) {
  const ScheduleCall down = Scripted::forward(0), up{Pass::forward, 1, 0};
  const ScheduleCall back{Pass::backward, 1, 0}, out = Scripted::backward(0);
  schedule_.place = [](std::int32_t, std::int32_t chunk) { return chunk; };
  schedule_.calls = {{down, up, back, out}};
  EXPECT_EQ(verdict(false, {1, 1, 2}), "(no error)");
  schedule_.calls = {{up, down, back, out}};
  EXPECT_EQ(
      verdict(false, {1, 1, 2}),
      "rank 0: call 0, forward of chunk 1, microbatch 0, waits forever for the forward of stage 0, which "
      "rank 0 has only after its call 0, forward of chunk 1, microbatch 0, and that waits too");
}

TEST_F(WrongSchedule, AnswersThatAreNotThere) {
  schedule_.null_calls = true;
  EXPECT_EQ(verdict(), "rank 0: order() returned 4 calls at null");
  schedule_.refusal.data = nullptr;
  schedule_.refusal.size = 7;
  EXPECT_EQ(verdict(), "its problem() returned 7 letters at null");
}

TEST_F(WrongSchedule, ARefusalIsPrintableWhateverItSays) {
  schedule_.refusal = Text("no\x1b[31m way");
  EXPECT_EQ(verdict(), "no\\x1b[31m way");
}

TEST_F(WrongSchedule, AFunctionThatThrows) {
  schedule_.place = [](std::int32_t, std::int32_t) -> std::int32_t {
    throw_error(ErrorCode::internal, "out of stages");
  };
  EXPECT_EQ(verdict(), "its stage() failed: out of stages");
}

TEST_F(WrongSchedule, AnyTwoCallsSwappedEitherEndOrAreRefused) {
  // Whatever the checks let through, time_schedule() can run: it would throw for a rank that waits forever.
  const std::vector<Scripted::Calls> good = schedule_.calls;
  int accepted = 0, refused = 0;
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        schedule_.calls = good;
        std::swap(schedule_.calls[rank][i], schedule_.calls[rank][j]);
        if (verdict() != "(no error)") {
          ++refused;
          continue;
        }
        EXPECT_GT(time_schedule(read_schedule(schedule_, {2, 2, 1}, {}, "mine"), {}).makespan, 0);
        ++accepted;
      }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(accepted + refused, 12);
}

}  // namespace
}  // namespace prun::test::pipeline_order_test
