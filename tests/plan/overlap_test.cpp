// Steps that overlap: what is cut out of a row of them, in which order a rank's calls stand then, and that
// the proof finds what is wrong with it.
#include "plan/pipeline/overlap.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "plan/pipeline/timing.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

// ---------------------------------------------------------------- the order

PipelineOrder order_of(std::int32_t ranks, std::int32_t microbatches) {
  const auto schedule = plugins().create<ScheduleInterface>("schedule", "2bw", OptionsApi{});
  return read_schedule(*schedule, {ranks, microbatches, 1}, {false, true}, "2bw");
}

TEST(Overlap, APeriodIsAForwardAndABackwardInTurn) {
  for (std::int32_t ranks = 1; ranks <= 6; ++ranks)
    for (std::int32_t microbatches = ranks; microbatches <= 2 * ranks + 1; ++microbatches) {
      const PipelineOrder order = order_of(ranks, microbatches);
      ASSERT_TRUE(order.overlap);
      EXPECT_DOUBLE_EQ(bubble_of(order), 0);
      EXPECT_DOUBLE_EQ(order.overlap->drain, 3.0 * (ranks - 1));
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const Period& period = order.overlap->periods[rank];
        ASSERT_EQ(period.passes.size(), 2u * static_cast<std::size_t>(microbatches));
        EXPECT_LE(period.measured, period.updated);
        std::int32_t behind = 0;
        for (std::size_t i = 0; i < period.passes.size(); ++i) {
          const ScheduleCall& call = order.calls[rank][static_cast<std::size_t>(period.passes[i].call)];
          EXPECT_EQ(call.pass, i % 2 == 0 ? Pass::forward : Pass::backward);
          behind += period.passes[i].behind;
        }
        EXPECT_EQ(behind, ranks - 1 - rank);
      }
    }
}

// In a row of steps it changes, holds on to microbatches for more than a step, or is another than alone.
class Odd final : public Schedule {
 public:
  explicit Odd(const Options&) {}
  enum class Kind { gpipe, reversed };
  std::vector<ScheduleCall> order(const ScheduleShape& shape, std::int32_t) override {
    std::vector<ScheduleCall> calls;
    const std::int32_t all = shape.microbatches;
    for (std::int32_t i = 0; i < all; ++i) calls.push_back({Pass::forward, 0, i});
    for (std::int32_t i = 0; i < all; ++i)
      calls.push_back({Pass::backward, 0, kind == Kind::gpipe || all < 8 ? i : all - 1 - i});
    return calls;
  }
  static inline Kind kind = Kind::gpipe;
};

TEST(Overlap, ARowThatDoesNotRepeatIsRefused) {
  const OptionsApi none{};
  ScheduleAdapter<Odd> schedule{Options(none)};
  const auto verdict = [&] {
    return refusal([&] { read_schedule(schedule, {2, 2, 1}, {false, true}, "odd"); });
  };
  Odd::kind = Odd::Kind::gpipe;
  EXPECT_NE(verdict().find("one goes on while more than one begins behind it"), std::string::npos)
      << verdict();
  Odd::kind = Odd::Kind::reversed;
  EXPECT_NE(verdict().find("does not stand where it does in a step alone"), std::string::npos) << verdict();
}

// ---------------------------------------------------------------- the proof

Assembly assembly_of(int rank = 0) {
  return Assembly(tiny_recipe({"model.layers=4", "batch.micro=1", "batch.global=5", "mesh.pp=3"},
                              "[[strategy]]\nplugin = 'pipeline'\nschedule = '2bw'\n"),
                  plugins(), rank);
}

std::string verdict_of(const Assembly& assembly, const std::function<void(Plan&)>& spoil) {
  Plan plan = assembly.plan();
  spoil(plan);
  return refusal([&] { check_plan(assembly.program(), plan); });
}

FunctionKind kind_of(const Plan& plan, const Call& call) { return plan.functions[call.function].kind; }

TEST(Overlap, EachPassReadsTheWeightsOfOneUpdateBefore) {
  for (int rank = 0; rank < 3; ++rank) {
    const Assembly assembly = assembly_of(rank);
    EXPECT_TRUE(assembly.plan().overlaps);
    EXPECT_EQ(verdict_of(assembly, [](Plan&) {}), "(no error)");
    // Where the newest weights lie, there are those of the step after.
    const std::string late = verdict_of(assembly, [&](Plan& plan) {
      for (Call& call : plan.calls)
        if (!call.runs_in(Round::going_on)) call.rounds = 7;
    });
    EXPECT_NE(late.find("update"), std::string::npos) << late;
  }
}

TEST(Overlap, AnUpdateBeforeTheStepBeforeIsDoneIsFound) {
  const Assembly assembly = assembly_of(0);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (Call& call : plan.calls)
      if (kind_of(plan, call) == FunctionKind::update) call.behind = false;
  });
  EXPECT_NE(found, "(no error)");
}

TEST(Overlap, GradientsOfTwoStepsInOnePlaceAreFound) {
  const Assembly assembly = assembly_of(1);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (Layout::Range& range : plan.layout.ranges)
      for (Layout::Strided& gradients : range.instances[Region::gradient]) gradients.stride = 0;
  });
  EXPECT_NE(found, "(no error)");
}

TEST(Overlap, NumbersOfTwoStepsInOnePlaceAreFound) {
  const Assembly assembly = assembly_of(1);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (Layout::Range& range : plan.layout.ranges) range.in_flight.stride = 0;
  });
  EXPECT_NE(found, "(no error)");
}

}  // namespace
}  // namespace prun::test
