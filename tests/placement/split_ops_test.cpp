// The LM head in ops that can be split computes what it did in one.
#include "placement/split_ops.hpp"
#include "plugin_check/interpreter.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"
#include "plan/plan.hpp"
#include "program/flops.hpp"
#include "program/passes.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::split_ops_test {
namespace {

constexpr Id head_segment = 1;

// x and the weight are parameters, so that both gradients can be read.
Program head_program(DType type) {
  const DType state = type == DType::f64 ? DType::f64 : DType::f32;
  Program program(std::make_shared<OpRegistry>(), {type, state, state, state}, {2, 5});
  const Dim hidden{"hidden", 6}, vocab{"vocab", 12};
  const Segment s = ProgramRef(&program_api(), &program).segment("head");
  s.op("lm_head", {s.vector("x", {{"batch", 2}, {"seq", 5}, hidden}, zeros()),
                   s.vector("weight", {vocab, hidden}, zeros()), s.targets(), s.runtime("inv_targets"),
                   s.runtime("loss_sum")});
  add_backward(program);
  return program;
}

Program after_split(Program program) {
  program.set_mesh(Mesh({{"dp", 1}, {"tp", 2}}));
  program.split("vocab", "tp");
  split_ops(program);
  return program;
}

std::vector<std::string> kinds(const Program& program, FunctionKind function) {
  std::vector<std::string> list;
  for (Id op : program.segment(head_segment).ops(function)) list.emplace_back(program.op(op).kind());
  return list;
}

// Loss, dx, dweight.
std::vector<double> step(const Program& program) {
  const auto device = cpu_device();
  Interpreter runner(program, kernels_of(*device));
  const RandomStream draw(5, stream_id("head"));
  std::uint64_t next = 0;
  for (Id id : program.parameters()) {
    std::vector<double> numbers(static_cast<std::size_t>(program.value(id).elements()));
    for (double& x : numbers) x = draw.normal(next++);
    runner.set(id, numbers);
  }
  for (Id id : program.inputs())
    if (program.value(id).name == "targets") runner.set(id, {1, 4, 11, -1, 9, -1, 6, 5, 0, 10});
  runner.set(program.find_runtime("inv_targets"), {0.125});
  runner.run(head_segment, FunctionKind::forward);
  runner.run(head_segment, FunctionKind::backward);
  std::vector<double> all = runner.numbers(program.find_runtime("loss_sum"));
  for (Id id : program.parameters())
    for (double x : runner.numbers(program.value(id).gradient)) all.push_back(x);
  return all;
}

TEST(SplitOps, StandsWhereTheHeadStood) {
  const Program before = head_program(DType::f32), after = after_split(before);
  EXPECT_NO_THROW(verify(after));
  EXPECT_EQ(kinds(before, FunctionKind::forward), std::vector<std::string>{"lm_head"});
  EXPECT_EQ(kinds(after, FunctionKind::forward),
            (std::vector<std::string>{"lm_head_scan", "all_reduce_max", "lm_head_rescale", "lm_head_loss",
                                      "lm_head_grad"}));
  EXPECT_EQ(kinds(after, FunctionKind::backward), kinds(before, FunctionKind::backward));
  const std::vector<Id>& ops = after.segment(head_segment).ops(FunctionKind::forward);
  EXPECT_EQ(after.attr(ops[0], "vocab"), 12);
  EXPECT_EQ(after.attr(ops[1], "axis"), 1);
  const Op& head = before.op(before.segment(head_segment).ops(FunctionKind::forward)[0]);
  EXPECT_EQ(after.op(ops[4]).operands[5], head.operands[5]);
  EXPECT_EQ(after.op(ops[4]).operands[6], head.operands[6]);
}

void expect_same_step(DType type, double tolerance) {
  const Program before = head_program(type);
  const std::vector<double> want = step(before), got = step(after_split(before));
  ASSERT_EQ(got.size(), want.size());
  EXPECT_GT(want[0], 0);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << name_of(type) << " number " << i;
}

TEST(SplitOps, LossAndGradientsAreThoseOfTheHead) {
  expect_same_step(DType::f64, 1e-12);
  expect_same_step(DType::f32, 1e-5);
  expect_same_step(DType::bf16, 8e-3);
}

TEST(SplitOps, ModelsKeepTheirFlopsAndStayValid) {
  for (const char* model : {"gpt", "llama"}) {
    const Assembly assembly(tiny_recipe({std::string("model.plugin=") + model}), plugins());
    const Program& before = assembly.program();
    const Program after = after_split(before);
    EXPECT_NO_THROW(verify(after)) << model;
    EXPECT_NE(to_text(after), to_text(before)) << model;
    EXPECT_GT(model_flops(before), 0);
    EXPECT_DOUBLE_EQ(model_flops(after), model_flops(before)) << model;
  }
}

TEST(SplitOps, AFrozenWeightGetsNoGradient) {
  Program program(std::make_shared<OpRegistry>(), {}, {2, 5});
  const Dim hidden{"hidden", 6};
  const Segment s = ProgramRef(&program_api(), &program).segment("head");
  s.op("lm_head", {s.vector("x", {{"batch", 2}, {"seq", 5}, hidden}, zeros()),
                   s.vector("weight", {{"vocab", 12}, hidden}, zeros()), s.targets(),
                   s.runtime("inv_targets"), s.runtime("loss_sum")});
  program.value(program.parameters()[1]).frozen = true;
  add_backward(program);
  const Program after = after_split(program);
  EXPECT_NO_THROW(verify(after));
  EXPECT_EQ(after.op(after.segment(head_segment).ops(FunctionKind::forward)[4]).operands[5], none);
}

TEST(SplitOps, AVocabularyOnTwoAxesHasTheLargestLogitOfBoth) {
  const Assembly assembly(tiny_recipe({},
                                      "[mesh]\ntp = 2\ntq = 2\n[[strategy]]\nplugin = 'tensor'\n"
                                      "[[strategy]]\nplugin = 'tensor'\naxis = 'tq'\n"),
                          plugins());
  const Program& program = assembly.program();
  std::vector<double> axes;
  for (Id op : program.segment(program.segment_count() - 1).ops(FunctionKind::forward)) {
    const auto& operands = program.op(op).operands;
    if (program.op(op).kind() == "all_reduce_max") axes.push_back(program.attr(op, "axis"));
    if (program.op(op).kind() != "lm_head_rescale") continue;
    EXPECT_EQ(axes, (std::vector<double>{0, 1}));
    for (std::size_t axis : {0, 1}) {
      EXPECT_TRUE(program.value(operands[0]).on(axis).is_partial());
      EXPECT_TRUE(program.value(operands[1]).on(axis).is_replicated());
    }
  }
  EXPECT_EQ(axes.size(), 2u);
}

TEST(SplitOps, ADimensionWithoutAnotherFormLeavesTheOp) {
  Program program = head_program(DType::f32);
  program.set_mesh(Mesh({{"tp", 2}, {"one", 1}}));
  program.split("hidden", "tp");
  program.split("vocab", "one");
  split_ops(program);
  EXPECT_EQ(kinds(program, FunctionKind::forward), std::vector<std::string>{"lm_head"});
}

}  // namespace
}  // namespace prun::test::split_ops_test
