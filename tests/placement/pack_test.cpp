// What becomes of edits of the ops that the ops of a bucket stand in for.
#include "placement/pack.hpp"

#include <gtest/gtest.h>

#include <functional>

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

std::string said_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(Packing, AnAddedValueIsPlacedAsAnotherOne) {
  const ProgramRef ref(&program_api(), program.get());
  const Id op = block.operations(FunctionKind::forward).front(), x = program->op(op).operands[0];
  const Dim codes[] = {{"batch", 4}, {"codes", 8}}, uncut[] = {{"codes", 8}};
  const AddedValue described{.name = "x.codes", .like = x, .dims = {codes, 2}};
  EXPECT_NE(said_by([&] { ref.add_value(described); }).find("nothing is placed before phase placed"),
            std::string::npos);
  place_on_mesh(*program);
  const Id added = ref.add_value(described);
  EXPECT_EQ(program->value(added).on(0), AxisPlacement::sharded("batch"));
  EXPECT_EQ(program->local_elements(added), 4 / 2 * 8);
  const std::string sentence = said_by([&] { ref.add_value({.name = "y", .like = x, .dims = {uncut, 1}}); });
  EXPECT_NE(sentence.find("ranks have parts of it along dimension 'batch'"), std::string::npos) << sentence;
  EXPECT_EQ(ref.shape(op).operand[0].dims[0].extent, 4);
  EXPECT_EQ(ref.local_shape(op).operand[0].dims[0].extent, 2);
}

TEST_F(Packing, CodesThatAreGatheredAreDeclaredOnceAndInBytes) {
  const ProgramRef ref(&program_api(), program.get());
  place_on_mesh(*program);
  const Id weight = program->op(block.operations(FunctionKind::forward)[1]).operands[1];
  const Dim dims[] = {{"codes", 8}};
  AddedValue codes{.name = "codes", .like = weight, .dtype = DType::f32, .dims = {dims, 1}};
  EXPECT_NE(said_by([&] { ref.gather_as(weight, codes); }).find("they are no bytes"), std::string::npos);
  codes.dtype = DType::u8;
  ref.gather_as(weight, codes);
  EXPECT_NE(said_by([&] { ref.gather_as(weight, codes); }).find("declared already"), std::string::npos);
  program->set_writer("strategy.7");
  EXPECT_NE(said_by([&] { ref.gather_as(weight, codes); }).find("declares codes; leave one out"),
            std::string::npos);
}

TEST_F(Packing, QuantizedValuesAreCountedByOneStrategy) {
  const ProgramRef ref(&program_api(), program.get());
  const CountedValue values[] = {{"b", 2}, {"a", 1}};
  QuantizationCounts counts{.name = "narrow", .values = {values, 2}, .every = 3, .bound = 0.5};
  EXPECT_NE(said_by([&] { ref.count_quantized(counts); }).find("count them in phase placed"),
            std::string::npos);
  place_on_mesh(*program);
  program->set_writer("strategy.1");
  counts = ref.count_quantized(counts);
  const QuantizationReport& report = program->requests().quantization.value();
  EXPECT_EQ(report.asked_by, "strategy.1");
  ASSERT_EQ(report.values.size(), 2u);
  EXPECT_EQ(report.values[0].name, "a");
  EXPECT_EQ(report.values[0].first, 2);
  EXPECT_EQ(program->value(counts.counts).dims[0].extent, 3);
  EXPECT_TRUE(program->value(counts.peaks).on(0).is_varying());
  EXPECT_NE(said_by([&] { ref.count_quantized(counts); }).find("another strategy counts some"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test::pack_test
