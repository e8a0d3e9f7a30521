// What splitting a dimension over an axis makes of a program.
#include <gtest/gtest.h>

#include <functional>

#include "placement/placement.hpp"
#include "program/passes.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::placement_test {
namespace {

Assembly assembled(int ranks, const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all = {"batch.micro=2", "batch.global=" + std::to_string(4 * ranks)};
  all.insert(all.end(), sets.begin(), sets.end());
  return Assembly(tiny_recipe(all, data_parallel(ranks)), plugins());
}

TEST(Mesh, RanksAreNumberedRowByRow) {
  const Mesh mesh({{"pp", 2}, {"dp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.world(), 24);
  EXPECT_EQ(mesh.coordinate(17, 0), 1);
  EXPECT_EQ(mesh.coordinate(17, 1), 1);
  EXPECT_EQ(mesh.coordinate(17, 2), 1);
  EXPECT_EQ(mesh.group(17, 0), (std::vector<int>{5, 17}));
  EXPECT_EQ(mesh.group(17, 1), (std::vector<int>{13, 17, 21}));
  EXPECT_EQ(mesh.group(17, 2), (std::vector<int>{16, 17, 18, 19}));
  EXPECT_EQ(mesh.find("dp"), 1);
  EXPECT_EQ(mesh.find("zp"), -1);
}

TEST(Placement, TheBatchIsSharedOutAndParametersAreNot) {
  const Assembly assembly = assembled(4);
  const Program& program = assembly.program();
  for (Id id = 0; id < program.value_count(); ++id) {
    const Value& value = program.value(id);
    const bool batched = !value.dims.empty() && value.dims[0].name == Name("batch");
    if (batched) {
      EXPECT_EQ(value.on(0), AxisPlacement::sharded("batch")) << value.name;
      EXPECT_EQ(program.local_dims(id)[0].extent * 4, value.dims[0].extent) << value.name;
    }
    if (value.role == Role::parameter || value.role == Role::state) {
      EXPECT_TRUE(value.on(0).is_replicated()) << value.name;
    }
    if (value.role == Role::gradient) {
      EXPECT_TRUE(value.on(0).is_partial()) << value.name;
    }
  }
}

TEST(Placement, EveryGradientIsSummedOnceAndNothingElseButScalars) {
  const Assembly assembly = assembled(2);
  const Program& program = assembly.program();
  std::map<std::string, int> sums;
  for (Id s = 0; s < program.segment_count(); ++s)
    for (int kind = 0; kind < function_kinds; ++kind)
      for (Id id : program.segment(s).functions[static_cast<std::size_t>(kind)]) {
        const Op& op = program.op(id);
        EXPECT_NE(op.kind(), "all_reduce");
        if (op.kind() != "all_reduce_update") continue;
        const Value& value = program.value(op.operands[0]);
        EXPECT_EQ(op.function == FunctionKind::reduce, value.role == Role::gradient) << value.name;
        ++sums[program.segment(value.segment).name + "." + value.name];
      }
  std::map<std::string, int> wanted = {{"step.counted", 1}, {"step.loss_sum", 1}, {"step.stop", 1}};
  for (Id id : program.parameters()) {
    const Value& gradient = program.value(program.value(id).gradient);
    wanted[program.segment(gradient.segment).name + "." + gradient.name] = 1;
  }
  EXPECT_EQ(sums, wanted);
}

TEST(Placement, ARankStartsWhereThoseBeforeItEnd) {
  const Assembly assembly = assembled(4);
  const Program& program = assembly.program();
  for (Id id : program.inputs())
    for (std::int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(program.starts(id, rank)[0], 2 * rank);
}

TEST(Placement, AnAxisOfOneChangesNothing) {
  const Assembly with = assembled(1), without(tiny_recipe({"batch.micro=2", "batch.global=4"}), plugins());
  EXPECT_EQ(to_text(with.program()), to_text(without.program()));
}

TEST(Placement, GradientsOfASegmentTravelTogether) {
  const Assembly assembly = assembled(2);
  int exchanges = 0, ops = 0;
  for (const PlannedFunction& function : assembly.plan().functions) {
    if (function.kind != FunctionKind::reduce) continue;
    exchanges += static_cast<int>(function.steps.size());
    for (const PlannedStep& step : function.steps) ops += 1 + static_cast<int>(step.also.size());
  }
  EXPECT_EQ(exchanges, 3);  // embedding, block, head
  EXPECT_EQ(ops, static_cast<int>(assembly.program().parameters().size()));
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

// With inputs alone.
Program on_mesh(const ModelContext& context, std::vector<Axis> axes) {
  Program program(std::make_shared<OpRegistry>(), {}, context);
  program.set_mesh(Mesh(std::move(axes)));
  return program;
}

TEST(Placement, ADimensionThatDoesNotDivideIsNamed) {
  Program program = on_mesh({3, 4}, {{"dp", 2}});
  program.split("batch", "dp");
  const std::string sentence = message_of([&] { place_on_mesh(program); });
  EXPECT_NE(sentence.find("cannot split dimension 'batch' of 'tokens' over axis 'dp': 3"), std::string::npos)
      << sentence;
  EXPECT_NE(sentence.find("axis 'dp'"), std::string::npos) << sentence;
}

TEST(Placement, AnUnknownAxisIsNamed) {
  Program program = on_mesh({4, 4}, {{"tp", 2}});
  EXPECT_EQ(message_of([&] { program.split("batch", "dp"); }),
            "the mesh has no axis 'dp' to split 'batch' over");
}

TEST(Placement, ADimensionThatNothingHasIsNamedWithTheNearest) {
  const auto split = [](const std::string& dims) {
    return message_of([&] {
      Assembly(tiny_recipe({}, "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'spread'\naxis = 'tp'\ndims = [" +
                                   dims + "]\n"),
               plugins());
    });
  };
  const std::string sentence = split("'fnn'");
  EXPECT_NE(sentence.find("error: strategy plugin 'spread': no value of the program has a dimension 'fnn' to "
                          "split over 'tp'; did you mean 'ffn'?"),
            std::string::npos)
      << sentence;
  // One that values have, whatever the ops make of it.
  EXPECT_EQ(split("'ffn', 'seq'"), "");
}

TEST(Placement, ASplitAskedForTwiceIsOne) {
  Program program = on_mesh({4, 4}, {{"dp", 2}});
  for (int i = 0; i < 2; ++i) program.split("batch", "dp");
  EXPECT_EQ(program.requests().splits.size(), 1u);
}

TEST(Placement, WhatDoesNotDivideIsNamedInTheRecipesWords) {
  const auto split = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"model.hidden=64", "model.heads=8", "model.ffn=32"};
    all.insert(all.end(), sets.begin(), sets.end());
    return message_of([&] {
      Assembly(tiny_recipe(all,
                           "[mesh]\ntp = 2\nsp = 2\n[[strategy]]\nplugin = 'tensor'\n"
                           "[[strategy]]\nplugin = 'spread'\naxis = 'sp'\ndims = ['ffn']\n"),
               plugins());
    });
  };
  EXPECT_EQ(split({}), "");
  // Ranks beyond the groups of heads share out queries.
  EXPECT_EQ(split({"model.plugin=llama", "model.kv_heads=1"}), "");
  EXPECT_EQ(split({"model.heads=1"}), "model.heads = 1 cannot be split over tp = 2; choose a multiple of 2");
  EXPECT_EQ(split({"model.vocab=65"}),
            "model.vocab = 65 cannot be split over tp = 2; choose a multiple of 2");
  EXPECT_EQ(split({"model.ffn=18"}),
            "model.ffn = 18 cannot be split over tp = 2 x sp = 2; choose a multiple of 4");
}

// Each rank has squares of its part of the batch: `own` is a partial sum once forward has run.
struct Sums {
  Program program = on_mesh({4, 4}, {{"dp", 2}});
  Segment segment = ProgramRef(&program_api(), &program).segment("a");
  Id own = program.runtime("own"), sum = program.runtime("sum"), result = program.runtime("result"),
     lr = program.runtime("lr");

  Sums() {
    const Id table = segment.weight("table", {{"vocab", 8}, {"hidden", 6}}, zeros());
    const Id x = segment.op("embedding", {segment.tokens(), table});
    for (const Id id : {own, sum}) add(FunctionKind::begin, "zero", {id});
    program.add_op(segment.id(), FunctionKind::forward, Part::input, "sum_squares", {x, own}, {});
    program.split("batch", "dp");
  }

  Id add(FunctionKind function, const char* kind, std::vector<Id> operands) {
    return program.add_op(program.step_segment(), function, Part::input, kind, std::move(operands), {});
  }
  std::string refusal() {
    return message_of([&] { place_on_mesh(program); });
  }
};

TEST(RuntimeSums, WhoeverReadWhatAllCountAlikeReadsItStill) {
  Sums sums;
  sums.add(FunctionKind::finish, "accumulate", {sums.lr, sums.sum});
  const Id reader = sums.add(FunctionKind::finish, "reciprocal", {sums.sum, sums.result});
  sums.add(FunctionKind::finish, "accumulate", {sums.own, sums.sum});
  EXPECT_EQ(sums.refusal(), "");
  EXPECT_EQ(sums.program.value(sums.program.op(reader).operands[0]).name, "sum@dp");
}

TEST(RuntimeSums, WhatIsWrittenAndThenAddedToInPartsIsRefused) {
  Sums sums;
  sums.add(FunctionKind::finish, "copy", {sums.lr, sums.sum});
  sums.add(FunctionKind::finish, "accumulate", {sums.own, sums.sum});
  EXPECT_NE(sums.refusal().find("writes 'sum', to which partial sums are added later"), std::string::npos);
}

TEST(RuntimeSums, WhatIsReadAndThenAddedToInPartsIsRefused) {
  Sums sums;
  sums.add(FunctionKind::finish, "reciprocal", {sums.own, sums.result});
  sums.add(FunctionKind::finish, "accumulate", {sums.sum, sums.own});
  EXPECT_EQ(sums.refusal(), "");
  Sums more;
  more.program.add_op(more.segment.id(), FunctionKind::forward, Part::input, "accumulate",
                      {more.own, more.sum}, {});
  more.add(FunctionKind::finish, "reciprocal", {more.own, more.result});
  more.add(FunctionKind::finish, "accumulate", {more.sum, more.own});
  EXPECT_NE(more.refusal().find("adds a partial sum to 'own', which has been read whole before"),
            std::string::npos);
}

TEST(RuntimeSums, WhatGoesOnGrowingCannotBeReadInForward) {
  Sums sums;
  sums.segment.op("reciprocal", {sums.own});
  EXPECT_NE(sums.refusal().find("'own') is a partial sum that goes on growing"), std::string::npos);
}

}  // namespace
}  // namespace prun::test::placement_test
