// Two programs over one memory: where what lasts lies, what each may write, and that the proof finds what is
// wrong.
#include <gtest/gtest.h>

#include <functional>

#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::base_program_test {
namespace {

class OverTraining : public testing::TestWithParam<Layout> {
 protected:
  OverTraining()
      : assembly(tiny_recipe(with(with(GetParam().sets, on_cpu().sets), {"eval.every=1", "model.layers=4"}),
                             GetParam().text),
                 plugins()),
        program(*assembly.evaluation()),
        plan(assembly.evaluation_plan()) {}

  std::string verdict() const {
    try {
      check_over(program, plan, {assembly.program(), assembly.plan()});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  template <class Wanted>
  void each_address(Wanted&& body) {
    for (PlannedFunction& function : plan.functions)
      for (PlannedStep& step : function.steps)
        for (std::size_t i = 0; !step.exchange && i < step.operands.size(); ++i)
          if (step.operands[i].value != none) body(program.op(step.op).access(i), step.operands[i].address);
  }

  Assembly assembly;
  const Program& program;
  Plan plan;
};

TEST_P(OverTraining, TheProofAcceptsWhatThePlannerMakes) { EXPECT_EQ(verdict(), ""); }

TEST_P(OverTraining, NoFunctionOfTrainingIsLeft) {
  for (const PlannedFunction& function : plan.functions)
    EXPECT_TRUE(function.kind == FunctionKind::load || function.kind == FunctionKind::begin ||
                function.kind == FunctionKind::gather || function.kind == FunctionKind::forward ||
                function.kind == FunctionKind::finish || function.kind == FunctionKind::report ||
                function.kind == FunctionKind::send || function.kind == FunctionKind::receive)
        << name_of(function.kind);
}

// The room that it has beside what stays is training's, which has that for activations and gathered
// parameters.
TEST_P(OverTraining, BothFitIntoThePlannedMemory) {
  const prun::Layout& all = assembly.plan().layout;
  for (std::size_t r = 0; r < plan.layout.ranges.size(); ++r) {
    EXPECT_EQ(plan.layout.ranges[r].begin, all.ranges[r].begin);
    EXPECT_LE(plan.layout.ranges[r].bytes(), all.ranges[r].bytes());
  }
  EXPECT_EQ(all.ranges[0].memory.bytes[static_cast<std::size_t>(Region::others)], 0);
  EXPECT_GT(all.ranges[1].memory.bytes[static_cast<std::size_t>(Region::others)], 0);  // what it is staged in
}

TEST_P(OverTraining, TheProofFindsAWriteIntoWhatStays) {
  each_address([](Access access, Address& address) {
    if (access == Access::read || address.region != Region::scratch) return;
    address.region = Region::parameter;
    address.whose = Whose::own;
  });
  EXPECT_NE(verdict().find("where the program beneath keeps its own"), std::string::npos) << verdict();
}

TEST_P(OverTraining, TheProofFindsAParameterThatLiesElsewhere) {
  each_address([](Access, Address& address) {
    if (lasts(address.region)) address.offset += 256;
  });
  for (PlannedFunction& function : plan.functions)
    for (PlannedStep& step : function.steps)
      for (PlannedOperand& operand : step.operands)
        if (step.exchange && operand.value != none && lasts(operand.address.region))
          operand.address.offset += 256;
  EXPECT_NE(verdict().find("does not lie where the program beneath has it"), std::string::npos) << verdict();
}

INSTANTIATE_TEST_SUITE_P(Layouts, OverTraining, testing::ValuesIn(layouts()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace prun::test::base_program_test
