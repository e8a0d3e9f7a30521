// Steps that overlap: what is cut out of a row of them, in which order a rank's calls stand then, and that
// the proof finds what is wrong with it.
#include "plan/pipeline/read_schedule.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "plan/pipeline/timing.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::overlap_test {
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
  return read_schedule(*schedule, {ranks, microbatches, 1}, {false, Delay::one}, "2bw");
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
        EXPECT_LE(period.measured.at, period.updated.at);
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
    return refusal([&] { read_schedule(schedule, {2, 2, 1}, {false, Delay::one}, "odd"); });
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
        if (!call.runs_in(Iteration::going_on)) call.to = Iteration::many;
    });
    EXPECT_NE(late.find("update"), std::string::npos) << late;
  }
}

TEST(Overlap, AnUpdateBeforeTheStepBeforeIsDoneIsFound) {
  const Assembly assembly = assembly_of(0);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (Call& call : plan.calls)
      if (kind_of(plan, call) == FunctionKind::update) call.behind = 0;
  });
  EXPECT_NE(found, "(no error)");
}

TEST(Overlap, GradientsOfTwoStepsInOnePlaceAreFound) {
  const Assembly assembly = assembly_of(1);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (prun::Layout::Range& range : plan.layout.ranges)
      for (prun::Layout::Strided& gradients : range.instances[Region::gradient]) gradients.stride = 0;
  });
  EXPECT_NE(found, "(no error)");
}

TEST(Overlap, NumbersOfTwoStepsInOnePlaceAreFound) {
  const Assembly assembly = assembly_of(1);
  const std::string found = verdict_of(assembly, [](Plan& plan) {
    for (prun::Layout::Range& range : plan.layout.ranges) range.in_flight.stride = 0;
  });
  EXPECT_NE(found, "(no error)");
}

// ---------------------------------------------------------------- stages that are each as old as they are

PipelineOrder stashed_order(std::int32_t ranks) {
  const auto schedule = plugins().create<ScheduleInterface>("schedule", "pipedream", OptionsApi{});
  return read_schedule(*schedule, {ranks, 1, 1}, {false, Delay::stages}, "pipedream");
}

TEST(Stages, EachGoesThroughAForwardAndTheBackwardOfItsDelay) {
  for (std::int32_t ranks = 1; ranks <= 9; ++ranks) {
    const PipelineOrder order = stashed_order(ranks);
    ASSERT_TRUE(order.overlap);
    EXPECT_NEAR(bubble_of(order), 0, 1e-12);
    EXPECT_DOUBLE_EQ(order.overlap->drain, 3.0 * (ranks - 1));
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const Period& period = order.overlap->periods[rank];
      EXPECT_EQ(period.passes, (std::vector<PeriodPass>{{0, 0}, {1, ranks - 1 - rank}}));
      EXPECT_EQ(period.running, order.overlap->periods[0].running);
      EXPECT_LT(period.reported.behind, period.running);
    }
  }
}

Assembly stashed_assembly(int rank) {
  return Assembly(tiny_recipe({"model.layers=4", "model.tied=false", "batch.micro=1", "batch.global=1",
                               "mesh.pp=3", "optimizer.clip=0"},
                              "[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\n"),
                  plugins(), rank);
}

bool is_forward(const Plan& plan, const Call& call) { return kind_of(plan, call) == FunctionKind::forward; }

TEST(Stages, PlansOfAllAreProven) {
  for (int rank = 0; rank < 3; ++rank) {
    const Assembly assembly = stashed_assembly(rank);
    EXPECT_TRUE(assembly.plan().overlaps);
    EXPECT_EQ(assembly.plan().slot_copies, 3 - rank);
    EXPECT_EQ(verdict_of(assembly, [](Plan&) {}), "(no error)");
  }
}

TEST(Stages, AForwardThatReadsAnotherVersionIsFound) {
  for (int rank = 0; rank < 2; ++rank) {
    const Assembly assembly = stashed_assembly(rank);
    // What a step finds that none runs before, and what it finds while others do, the other way round.
    const std::string found = verdict_of(assembly, [](Plan& plan) {
      for (std::size_t c = 0; c + 1 < plan.calls.size(); ++c)
        if (is_forward(plan, plan.calls[c]) && plan.calls[c].to == Iteration::many &&
            plan.calls[c + 1].to == 0)
          std::swap(plan.calls[c].function, plan.calls[c + 1].function);
    });
    EXPECT_NE(found.find("it is ahead"), std::string::npos) << found;
  }
}

TEST(Stages, ABackwardThatReadsTheNewestIsFound) {
  for (int rank = 0; rank < 2; ++rank) {
    const Assembly assembly = stashed_assembly(rank);
    const Program& program = assembly.program();
    const std::string found = verdict_of(assembly, [&](Plan& plan) {
      for (PlannedFunction& function : plan.functions) {
        if (function.kind != FunctionKind::backward) continue;
        for (PlannedStep& step : function.steps)
          for (PlannedOperand& operand : step.operands)
            if (operand.value != none && program.value(operand.value).age > 0) {
              const Id parameter = program.value(operand.value).before_of;
              operand = {parameter, plan.allocation(parameter)};
            }
      }
    });
    EXPECT_NE(found.find("it is ahead"), std::string::npos) << found;
  }
}

TEST(Stages, AVersionThatIsNotMovedOnIsFound) {
  const Assembly assembly = stashed_assembly(0);
  const Program& program = assembly.program();
  const std::string found = verdict_of(assembly, [&](Plan& plan) {
    for (PlannedFunction& function : plan.functions)
      if (function.kind == FunctionKind::update)
        for (PlannedStep& step : function.steps)
          for (PlannedOperand& operand : step.operands)
            if (operand.value != none && program.value(operand.value).age == 1) {
              const Id parameter = program.value(operand.value).before_of;
              operand = {program.as_before(parameter, 2), plan.allocation(program.as_before(parameter, 2))};
            }
  });
  EXPECT_NE(found, "(no error)");
}

TEST(Stages, MicrobatchesOfTwoStepsInOnePlaceAreFound) {
  const Assembly assembly = stashed_assembly(1);
  EXPECT_NE(verdict_of(assembly, [](Plan& plan) { plan.slot_copies = 1; }), "(no error)");
  EXPECT_NE(verdict_of(assembly, [](Plan& plan) { plan.received_copies = 1; }), "(no error)");
}

}  // namespace
}  // namespace prun::test::overlap_test
