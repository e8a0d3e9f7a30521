// What becomes of edits of the ops that the ops of a bucket stand in for.
#include "placement/pack.hpp"

#include <gtest/gtest.h>

#include "placement/placement.hpp"
#include "program/step.hpp"
#include "prun/strategy.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::pack_test {
namespace {

class Packing : public testing::Test {
 protected:
  Packing() {
    const ModelContext context{4, 16};
    program = std::make_unique<Program>(std::make_shared<OpRegistry>(), Precision{}, context);
    program->set_mesh(Mesh({{"dp", 2}}));
    raise(plugins()
              .create<ModelInterface>("model", recipe.section("model"))
              ->build(context, &program_api(), program.get()));
    add_backward(*program);
    add_update(*program, one_optimizer(*optimizer));
    add_step(*program, {1.0});
    block = ProgramRef(&program_api(), program.get()).segments()[2];
    program->split("batch", "dp");
  }

  void pack(const std::string& stage = "1") {
    place_on_mesh(*program);
    const Recipe zeros =
        tiny_recipe({}, "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'zero'\nstage = " + stage + "\n");
    const auto zero = plugins().create<StrategyInterface>("strategy", zeros.strategies().front());
    raise(zero->apply(Phase::state, &program_api(), program.get()));
    pack_state(*program, one_optimizer(*optimizer), *program->requests().shards);
    raise(zero->apply(Phase::collectives, &program_api(), program.get()));
    verify(*program);
  }

  std::string refusal() {
    try {
      pack();
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2);
      return error.what();
    }
    return "";
  }

  std::string kinds(FunctionKind function) const {
    std::string list;
    for (Id op : block.operations(function)) list += std::string(program->op(op).kind()) + ";";
    return list;
  }

  // The first op of a function of the block, and the gradient that it works on.
  Id first(FunctionKind kind) const { return block.operations(kind).front(); }
  Id gradient() const { return program->op(first(FunctionKind::norm)).operands[0]; }
  std::size_t blocks_buckets() const {
    return static_cast<std::size_t>(
        std::count_if(program->buckets().begin(), program->buckets().end(),
                      [&](const Bucket& bucket) { return bucket.segment == block.id(); }));
  }

  Recipe recipe = tiny_recipe();
  std::shared_ptr<OptimizerInterface> optimizer =
      plugins().create<OptimizerInterface>("optimizer", recipe.section("optimizer"));
  std::unique_ptr<Program> program;
  Segment block{ProgramRef(nullptr, nullptr), none};
};

TEST_F(Packing, ParametersThatAreUpdatedAlikeShareABucket) {
  pack();
  EXPECT_EQ(blocks_buckets(), 2u);  // with weight decay and without
}

TEST_F(Packing, UpdatesOfASegmentComeBeforeAllItsGathers) {
  pack();
  EXPECT_EQ(kinds(FunctionKind::update), "adamw;adamw;all_gather;all_gather;");
  EXPECT_EQ(kinds(FunctionKind::reduce), "reduce_scatter;reduce_scatter;");
}

TEST_F(Packing, PartsAddUpBehindAllSumsOfASegment) {
  pack("2");
  EXPECT_EQ(kinds(FunctionKind::reduce), "reduce_scatter;reduce_scatter;accumulate;accumulate;");
}

TEST_F(Packing, AnEditedAttributeIsTheBucketsToo) {
  program->set_attr(first(FunctionKind::update), "lr_scale", 0.25);
  pack();
  EXPECT_EQ(blocks_buckets(), 3u);
  int edited = 0;
  for (Id op : block.operations(FunctionKind::update))
    if (program->op(op).kind() == "adamw") edited += program->attr(op, "lr_scale") == 0.25;
  EXPECT_EQ(edited, 1);
}

TEST_F(Packing, AnEditedOperandIsTheBucketsToo) {
  const Id clip = program->runtime("clip"), keep = program->runtime("keep");
  program->replace_operand(first(FunctionKind::update), 7, keep);
  pack();
  int edited = 0;
  for (Id op : program->segment(block.id()).ops(FunctionKind::update))
    if (program->op(op).kind() == "adamw") edited += program->op(op).operands[7] != clip;
  EXPECT_EQ(edited, 1);
}

TEST_F(Packing, AnOpAddedToAnUpdateIsRefused) {
  block.insert(FunctionKind::update, first(FunctionKind::update), "scale", {gradient()}, 1,
               {{"factor", 2.0}});
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("op 'scale' was put into it"), std::string::npos) << sentence;
}

TEST_F(Packing, AnotherTensorInAnUpdateIsRefused) {
  const Id op = first(FunctionKind::update);
  program->replace_operand(op, 2, program->op(block.operations(FunctionKind::norm)[1]).operands[0]);
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("op 'adamw' has another operand 'gradient' in it"), std::string::npos) << sentence;
}

TEST_F(Packing, AnUpdateTakenOutIsRefused) {
  program->erase_op(first(FunctionKind::update));
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("op 'adamw' was taken out of it"), std::string::npos) << sentence;
}

TEST_F(Packing, AnotherMeasureOfAGradientIsRefused) {
  block.insert(FunctionKind::norm, none, "sum_squares", {gradient(), block.runtime("measure")}, 0);
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("cannot run op 'sum_squares' in norm of segment"), std::string::npos) << sentence;
}

TEST_F(Packing, AnotherOpAfterAGradientIsSummedIsRefused) {
  place_on_mesh(*program);
  const Id made = block.insert(FunctionKind::reduce, none, "scale", {gradient()}, 1, {{"factor", 0.5}})[0];
  EXPECT_NE(made, none);
  try {
    pack_state(*program, one_optimizer(*optimizer), {{0}});
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot run op 'scale' in reduce of segment"), std::string::npos)
        << error.what();
  }
}

TEST_F(Packing, HowAParameterIsTrainedIsSaidBeforeItsUpdateIsWritten) {
  const ProgramRef ref(&program_api(), program.get());
  const Id parameter = program->parameters().front();
  try {
    ref.set_parameter(parameter, false, true, 2.0);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("in phase 'model' only"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace prun::test::pack_test
