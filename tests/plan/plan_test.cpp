// Plans: offsets, the proof by replay, and that the proof finds what is wrong.
#include <gtest/gtest.h>

#include <functional>

#include "base/random.hpp"
#include "plan/make/make_plan.hpp"
#include "plan/offsets.hpp"
#include "plan/proof/check_plan.hpp"
#include "program/flops.hpp"
#include "support/assembly_fixture.hpp"
#include "support/lowering.hpp"

namespace prun::test::plan_test {
namespace {

TEST(Offsets, NothingAliveOverlaps) {
  const RandomStream draw(1, 2);
  std::uint64_t n = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Lifetime> list;
    std::int64_t widest = 0;
    for (int i = 0; i < 40; ++i) {
      const auto first = static_cast<std::int32_t>(draw.bits32(n++) % 30);
      list.push_back(
          {1 + draw.bits32(n++) % 5000, first, first + static_cast<std::int32_t>(draw.bits32(n++) % 8), -1});
    }
    const std::int64_t total = assign_offsets(list);
    for (std::int32_t t = 0; t < 40; ++t) {
      std::int64_t live = 0;
      for (const Lifetime& one : list) live += one.first <= t && t <= one.last ? align(one.bytes) : 0;
      widest = std::max(widest, live);
    }
    EXPECT_GE(total, widest);
    EXPECT_LE(total, 2 * widest);
    for (std::size_t i = 0; i < list.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = list[i].first <= list[j].last && list[j].first <= list[i].last;
        const bool apart = list[i].offset + list[i].bytes <= list[j].offset ||
                           list[j].offset + list[j].bytes <= list[i].offset;
        ASSERT_TRUE(!together || apart);
      }
  }
}

class PlanCheck : public testing::Test {
 protected:
  PlanCheck()
      : assembly(tiny_recipe({"batch.micro=1", "batch.global=4"}), plugins()), plan(assembly.plan()) {}

  std::string verdict() const {
    try {
      check_plan(assembly.program(), plan);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  Call& first_call(FunctionKind kind) {
    for (Call& call : plan.calls)
      if (plan.functions[static_cast<std::size_t>(call.function)].kind == kind) return call;
    throw_error(ErrorCode::internal, "no such call");
  }

  Assembly assembly;
  Plan plan;
};

TEST_F(PlanCheck, AcceptsWhatThePlannerMakes) { EXPECT_EQ(verdict(), ""); }

TEST_F(PlanCheck, FindsAMissingWaitForTheBatch) {
  first_call(FunctionKind::forward).waits.clear();
  EXPECT_NE(verdict().find("without waiting"), std::string::npos) << verdict();
}

TEST_F(PlanCheck, FindsABatchOverwrittenWhileInUse) {
  for (Call& call : plan.calls)
    if (plan.functions[static_cast<std::size_t>(call.function)].kind == FunctionKind::load)
      call.waits.clear();
  EXPECT_NE(verdict().find("while another queue may use it"), std::string::npos) << verdict();
}

TEST_F(PlanCheck, FindsScratchThatOverlaps) {
  for (PlannedFunction& function : plan.functions)
    for (PlannedStep& step : function.steps)
      for (PlannedOperand& operand : step.operands)
        if (operand.address.region == Region::scratch) operand.address.offset = 0;
  EXPECT_NE(verdict().find("but its bytes hold"), std::string::npos) << verdict();
}

TEST_F(PlanCheck, FindsSavedValuesThatShareBytes) {
  auto& slots = plan.layout.ranges[0].instances[static_cast<std::size_t>(Region::slot)];
  slots[2] = slots[3];
  EXPECT_NE(verdict().find("but its bytes hold"), std::string::npos) << verdict();
}

TEST_F(PlanCheck, FindsAFunctionThatIsNeverCalled) {
  std::erase_if(plan.calls, [&](const Call& call) {
    return plan.functions[static_cast<std::size_t>(call.function)].kind == FunctionKind::norm;
  });
  for (QueueInfo& queue : plan.queues) queue.calls = 1000;
  EXPECT_NE(verdict().find("function norm of segment 'embedding' is never called"), std::string::npos)
      << verdict();
}

TEST_F(PlanCheck, FindsALostEffect) {
  for (PlannedFunction& function : plan.functions)
    if (function.kind == FunctionKind::norm) {
      function.steps.pop_back();
      --function.pieces.back().last;
    }
  EXPECT_NE(verdict().find("has lost ops"), std::string::npos) << verdict();
}

std::string parts_over_two(int stage) {
  return data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

// Functions, host and check take where a value lies from one place.
TEST(Allocations, AreWhereTheStepsOfEveryFunctionSay) {
  for (const int stage : {1, 2, 3}) {
    const Assembly assembly(tiny_recipe({"batch.global=8"}, parts_over_two(stage)), plugins());
    const Plan& plan = assembly.plan();
    for (const PlannedFunction& function : plan.functions)
      for (const PlannedStep& step : function.steps)
        for (const PlannedOperand& operand : step.operands) {
          if (operand.value == none) continue;
          const auto allocation = plan.allocations.find(operand.value);
          const Region region = operand.address.region;
          const bool scratch =
              region == Region::scratch || (region == Region::bucket && allocation == plan.allocations.end());
          ASSERT_EQ(allocation == plan.allocations.end(), scratch)
              << assembly.program().value(operand.value).name;
          if (scratch) continue;
          EXPECT_EQ(allocation->second.region, region);
          EXPECT_EQ(allocation->second.offset, operand.address.offset);
          EXPECT_EQ(allocation->second.part_axis, operand.address.part_axis);
        }
  }
}

TEST(Allocations, OfARanksPartFollowItsCoordinate) {
  const Recipe recipe = tiny_recipe({"batch.global=8"}, parts_over_two(1));
  const Assembly first(recipe, plugins(), 0), second(recipe, plugins(), 1);
  const Bucket& bucket = first.program().buckets().front();
  const auto own = [&](const Assembly& of) {
    return of.plan().resolve(1, of.plan().allocation(bucket.own_parameters));
  };
  EXPECT_EQ(own(first), first.plan().resolve(1, first.plan().allocation(bucket.all_parameters)));
  EXPECT_EQ(own(second) - own(first), first.program().local_bytes(bucket.own_parameters));
}

TEST(Allocations, WhatIsNotThereFromStepToStepIsRefused) {
  const Assembly assembly(tiny_recipe({"batch.global=8"}, parts_over_two(3)), plugins());
  const Plan& plan = assembly.plan();
  const Id gathered = assembly.program().parameters().front();
  EXPECT_THROW(plan.resolve(1, plan.allocation(gathered)), Error);
  const Id block = assembly.program().segment_count() - 2;
  for (Id op : assembly.program().segment(block).ops(FunctionKind::norm))
    EXPECT_TRUE(lasts(plan.allocation(assembly.program().op(op).operands[0]).region));
}

// Gradients kept in parts: blocks are not handed to the sum, in each microbatch or in the last one only.
TEST(PartsCheck, FindsGradientsThatAreNotSummed) {
  const Assembly assembly(
      tiny_recipe({"batch.micro=1", "batch.global=4", "model.layers=4"}, parts_over_two(2)), plugins());
  const auto verdict = [&](bool every) {
    Plan plan = assembly.plan();
    Call* last = nullptr;
    PlannedFunction idle;
    for (Call& call : plan.calls) {
      const PlannedFunction& function = plan.functions[static_cast<std::size_t>(call.function)];
      if (function.kind != FunctionKind::reduce || call.instance != 3) continue;
      if (call.piece == 0) last = &call;
      if (idle.pieces.empty()) idle = function;
    }
    for (Piece& piece : idle.pieces) piece.last = piece.first;
    plan.functions.push_back(idle);
    const auto nothing = static_cast<std::int32_t>(plan.functions.size()) - 1, reduce = last->function;
    for (Call& call : plan.calls)
      if (call.function == reduce && call.instance == 3 && (every || &call >= last)) call.function = nothing;
    try {
      check_plan(assembly.program(), plan);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(verdict(true).find("again before it is summed over the ranks"), std::string::npos)
      << verdict(true);
  EXPECT_NE(verdict(false).find("is not summed over the ranks when its norm is taken"), std::string::npos)
      << verdict(false);
}

// The refusal of a plan over `ranks` data-parallel ranks whose program has one more exchange.
std::string refusal(int ranks, FunctionKind function, const char* kind, const char* value,
                    std::span<const AttrValue> attrs) {
  const Assembly assembly(tiny_recipe({"batch.micro=1"}, data_parallel(ranks)), plugins());
  Program program = assembly.program();
  const Id segment = function == FunctionKind::finish ? program.step_segment() : program.step_segment() + 1;
  std::vector<Id> operands;
  for (Id id : program.segment(segment).values)
    if (program.value(id).name == value) operands.push_back(id);
  if (program.registry().find(kind).operand_count == 1)
    program.add_op(segment, function, Part::input, kind, operands, attrs);
  else
    program.add_op_creating(segment, function, Part::input, kind, operands, attrs, none);
  const auto device = cpu_device();
  try {
    make_plan(program, lowering_on(*device), 4, 0);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Plan, ExchangesThatDoNotFitAreRefused) {
  const AttrValue fits[] = {{"axis", 0}}, beyond[] = {{"axis", 3}};
  const AttrValue blocks[] = {{"axis", 0}, {"dim", 0}, {"parts", 2}};
  EXPECT_EQ(refusal(2, FunctionKind::finish, "all_reduce_update", "loss_sum", fits), "");
  EXPECT_EQ(refusal(2, FunctionKind::finish, "all_reduce_update", "loss_sum", beyond),
            "segment 'step', op 'all_reduce_update': the mesh has no axis 3 to exchange over");
  EXPECT_EQ(
      refusal(1, FunctionKind::finish, "all_reduce_update", "loss_sum", fits),
      "segment 'step', op 'all_reduce_update': axis 0 of the mesh has one rank; leave the exchange out");
  EXPECT_EQ(
      refusal(2, FunctionKind::forward, "all_gather", "token", blocks),
      "segment 'embedding', op 'all_gather': all_gather over 2 ranks does not make 2048 elements in fp32 "
      "of 2048 in fp32; exchange a value that lies as it needs");
}

TEST(Plan, AnOpWhoseOperandsDifferOnARankIsRefused) {
  const Recipe recipe = tiny_recipe({"batch.micro=2"}, data_parallel(2) + "[[strategy]]\nplugin = 'zero'\n");
  const Assembly assembly(recipe, plugins());
  Program program = assembly.program();
  const Bucket& bucket = program.buckets().front();
  const Id whole = program.add_op_creating(bucket.segment, FunctionKind::update, Part::input, "scale",
                                           std::span(&bucket.own_gradients, 1), {}, none)[0];
  const auto device = cpu_device();
  try {
    make_plan(program, lowering_on(*device), 1, 0);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              detail::concat("segment 'embedding', op 'scale': operand 'y' has ",
                             program.local_elements(whole), " elements on a rank, where the others make ",
                             program.local_elements(bucket.own_gradients)));
  }
}

TEST(Plan, FunctionsArePlannedOnceHoweverManyLayers) {
  const Assembly two(tiny_recipe(), plugins()), eight(tiny_recipe({"model.layers=8"}), plugins());
  EXPECT_EQ(two.plan().functions.size(), eight.plan().functions.size());
  EXPECT_GT(eight.plan().calls.size(), two.plan().calls.size());
}

TEST(Plan, FlopsFollowTheConvention) {
  // 6 N + 6 layers heads head_dim seq per token, N without the token table.
  const Assembly assembly(tiny_recipe(), plugins());
  const double n = 2 * (4 * 32 * 32 + 8 * 32 * 32) + 64 * 32;
  const double per_token = 6 * n + 6.0 * 2 * 32 * 16;
  EXPECT_DOUBLE_EQ(model_flops(assembly.program()), per_token * 4 * 16);
}

}  // namespace
}  // namespace prun::test::plan_test
