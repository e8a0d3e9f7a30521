// What backward computes again: what is kept, what runs twice, what a plan says of it. That the numbers stay
// the same is tests/train/recompute_test.cpp.
#include "program/recompute.hpp"
#include "plan/make/make_plan.hpp"
#include "plugin_check/interpreter.hpp"
#include "program/flops.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/text.hpp"
#include "inspect/report.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"
#include "support/assembly_fixture.hpp"
#include "support/lowering.hpp"

namespace prun::test::recompute_test {
namespace {

std::string recompute_strategy(const std::string& options) {
  return "[[strategy]]\nplugin = \"recompute\"\n" + options + "\n";
}

std::int64_t bytes_of(const Assembly& assembly, Region region) {
  return assembly.plan().layout.memory.bytes[static_cast<std::size_t>(region)];
}

// What one block keeps from forward to backward.
std::int64_t kept_by_block(const Assembly& assembly) {
  for (std::size_t i = 0; i < assembly.plan().instances.size(); ++i)
    if (assembly.program().segment(assembly.plan().instances[i].segment).name == "block")
      return assembly.plan().layout.ranges[0].instances[static_cast<std::size_t>(Region::slot)][i].stride;
  return -1;
}

std::vector<std::string> kinds_again(const Assembly& assembly) {
  std::vector<std::string> kinds;
  const Program& program = assembly.program();
  for (Id s = 0; s < program.segment_count(); ++s)
    for (Id op : program.segment(s).ops(FunctionKind::backward))
      if (program.op(op).again) kinds.emplace_back(program.op(op).kind());
  return kinds;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A chain gelu -> linear -> gelu -> scale, trained, with backward and step.
struct Chain {
  std::unique_ptr<Program> program =
      std::make_unique<Program>(std::make_shared<OpRegistry>(), Precision{}, ModelContext{2, 4});
  Id block = none;

  Chain() {
    const ProgramRef ref(&program_api(), program.get());
    const Segment first = ref.segment("first"), s = ref.segment("block", 3);
    block = s.id();
    const Dim batch{"batch", 64}, hidden{"hidden", 64}, wide{"wide", 64};
    first.outgoing(first.op("gelu", {first.vector("x", {batch, hidden}, ones())}));
    const Id up =
        s.op("linear", {s.op("gelu", {s.incoming()}), s.weight("up", {wide, hidden}, ones()), none});
    s.outgoing(s.op("linear", {s.op("gelu", {up}), s.weight("down", {hidden, wide}, ones()), none}));
    add_backward(*program);
    add_step(*program, {});
  }

  std::int64_t kept(const RecomputeChoice& choice) const {
    return estimate_recompute(*program, block, choice).kept_bytes;
  }
};

using Kind = RecomputeChoice::Kind;
constexpr std::int64_t value_bytes = 64 * 64 * 4;

TEST(Recompute, KeepsACheapestCut) {
  const Chain chain;
  EXPECT_EQ(chain.kept({}), 3 * value_bytes);  // both results of gelu, and what the second one reads
  EXPECT_EQ(chain.kept({Kind::ops, {"gelu"}}), value_bytes);
  EXPECT_EQ(chain.kept({Kind::ops, {"linear"}}), 2 * value_bytes);  // from one of them the other two follow
  EXPECT_EQ(chain.kept({Kind::ops, {"gelu", "linear"}}), 0);
  EXPECT_EQ(chain.kept({Kind::full, {}}), 0);
  EXPECT_EQ(chain.kept({Kind::ops, {"rmsnorm"}}), 3 * value_bytes);
}

TEST(Recompute, RunsAgainOnlyWhatIsNeeded) {
  Chain chain;
  recompute(*chain.program, chain.block, {Kind::full, {}});
  verify(*chain.program);
  std::vector<std::string> kinds;
  for (Id op : chain.program->segment(chain.block).ops(FunctionKind::backward))
    if (chain.program->op(op).again) kinds.emplace_back(chain.program->op(op).kind());
  EXPECT_EQ(kinds, (std::vector<std::string>{"gelu", "linear", "gelu"}));  // not the last linear
  EXPECT_NE(to_text(*chain.program).find("# again"), std::string::npos);
  EXPECT_EQ(recomputed_text(*chain.program), "gelu, linear in block");
  EXPECT_EQ(recomputed_flops(*chain.program), 3 * 2.0 * 64 * 64 * 64);
}

// Chosen experts on one path: their gradients can do without what went into the activations.
struct Chosen {
  static constexpr std::int64_t batch = 2, seq = 8, choices = 2, hidden = 16, ffn = 12;
  std::unique_ptr<Program> program =
      std::make_unique<Program>(std::make_shared<OpRegistry>(), Precision{}, ModelContext{2, 4});
  Id block = none;

  Chosen() {
    const ProgramRef ref(&program_api(), program.get());
    const Segment first = ref.segment("first"), s = ref.segment("block", 3);
    block = s.id();
    const Dim b{"batch", batch}, q{"seq", seq}, h{"hidden", hidden}, e{"experts", 4}, f{"ffn", ffn};
    first.outgoing(first.op("gelu", {first.vector("x", {b, q, h}, ones())}));
    const Id x = s.incoming(), logits = s.op("router", {x, s.weight("router", {{"routes", 4}, h}, ones())});
    const std::vector<Id> chosen = s.ops("route", {logits, none}, 2, {{"choices", choices}});
    s.outgoing(s.op("experts",
                    {x, chosen[0], chosen[1], s.weight("up", {e, {"gate", 2}, f, h}, ones()),
                     s.weight("down", {e, h, f}, ones())},
                    {{"experts", 4.0}}));
    add_backward(*program);
    add_step(*program, {});
  }

  RecomputeEstimate estimate(const RecomputeChoice& choice) const {
    return estimate_recompute(*program, block, choice);
  }
  // Operands that ops of these kinds have, absent or not.
  std::vector<Id> operands(FunctionKind function, const std::string& kind, std::size_t index) const {
    std::vector<Id> found;
    for (Id op : program->segment(block).ops(function))
      if (program->op(op).kind() == kind) found.push_back(program->op(op).operands.at(index));
    return found;
  }
};

TEST(Recompute, WhatGradientsCanDoWithoutIsLeftOut) {
  Chosen chain;
  constexpr std::int64_t rows = Chosen::batch * Chosen::seq * Chosen::choices,
                         bytes = rows * 2 * Chosen::ffn * 4;
  const RecomputeEstimate all = chain.estimate({}), less = chain.estimate({Kind::ops, {"experts"}});
  EXPECT_EQ(all.kept_bytes - less.kept_bytes, bytes);
  EXPECT_EQ(all.cost.flops, 0);
  EXPECT_EQ(less.cost.flops, 2 * 2.0 * rows * 2 * Chosen::ffn * Chosen::hidden);  // by both halves
  const std::vector<Id> kept = chain.operands(FunctionKind::forward, "experts", 6);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(chain.operands(FunctionKind::backward, "experts_grad", 6), kept);
  EXPECT_EQ(chain.operands(FunctionKind::backward, "experts_weight_grad", 6), kept);
  recompute(*chain.program, chain.block, {Kind::ops, {"experts"}});
  verify(*chain.program);
  const std::vector<Id> absent = {none};
  EXPECT_EQ(chain.operands(FunctionKind::forward, "experts", 6), absent);
  EXPECT_EQ(chain.operands(FunctionKind::backward, "experts_grad", 6), absent);
  EXPECT_EQ(chain.operands(FunctionKind::backward, "experts_weight_grad", 6), absent);
  EXPECT_TRUE(chain.operands(FunctionKind::backward, "experts", 6).empty());  // the op itself runs once
  EXPECT_EQ(recomputed_text(*chain.program), "experts in block");
}

TEST(Recompute, ASplitBackwardComputesInEachFunctionWhatItReads) {
  Chain chain;
  split_backward(*chain.program);
  recompute(*chain.program, chain.block, {Kind::ops, {"gelu"}});
  verify(*chain.program);
  // Only the weights' gradients read the results of gelu.
  EXPECT_EQ(recomputed_text(*chain.program), "gelu in block");
  for (Id op : chain.program->segment(chain.block).ops(FunctionKind::backward))
    EXPECT_FALSE(chain.program->op(op).again);
  int again = 0;
  for (Id op : chain.program->segment(chain.block).ops(FunctionKind::backward_weight))
    again += chain.program->op(op).again;
  EXPECT_EQ(again, 2);
}

// What a block hands back, and the gradients of its weights, with a batch of its own.
std::vector<double> results_of(const Program& program, Id block) {
  const std::shared_ptr<DeviceInterface> device = cpu_device();
  Interpreter interpreter(program, kernels_of(*device));
  const SegmentData& segment = program.segment(block);
  std::vector<Id> results = {segment.incoming_gradient};
  const auto fill = [&](Id id, double step) {
    std::vector<double> numbers(static_cast<std::size_t>(program.value(id).elements()));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(step * static_cast<double>(i));
    interpreter.set(id, numbers);
  };
  fill(segment.incoming, 0.7);
  fill(segment.outgoing_gradient, 0.3);
  for (Id id : segment.values)
    if (program.value(id).role == Role::parameter) {
      fill(id, 0.01);
      results.push_back(program.value(id).gradient);
    }
  for (FunctionKind kind : {FunctionKind::forward, FunctionKind::backward, FunctionKind::backward_weight})
    interpreter.run(block, kind);
  std::vector<double> all;
  for (Id id : results) {
    const std::vector<double> numbers = interpreter.numbers(id);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

TEST(Recompute, ASplitBackwardKeepsEveryBit) {
  const Chain plain;
  const std::vector<double> expected = results_of(*plain.program, plain.block);
  for (const RecomputeChoice& choice : {RecomputeChoice{Kind::full, {}}, {Kind::ops, {"gelu"}}}) {
    Chain before, after;
    split_backward(*before.program);
    recompute(*before.program, before.block, choice);
    EXPECT_EQ(results_of(*before.program, before.block), expected);
    recompute(*after.program, after.block, choice);
    split_backward(*after.program);
    verify(*after.program);
    EXPECT_EQ(results_of(*after.program, after.block), expected);
  }
}

std::int64_t slot_bytes(const Plan& plan) {
  return plan.layout.memory.bytes[static_cast<std::size_t>(Region::slot)];
}

// The plan is replayed over shadow memory as it is made.
TEST(Recompute, PlansOfASplitBackwardHold) {
  const Assembly assembly(tiny_recipe({"model.dropout=0.1"}), plugins());
  const std::shared_ptr<DeviceInterface> device = cpu_device();
  Program plain = assembly.program(), before = plain, after = plain;
  const Id block = 2;
  split_backward(plain);
  split_backward(before);
  recompute(before, block, {Kind::full, {}});
  recompute(after, block, {Kind::full, {}});
  split_backward(after);
  for (const Program* program : {&plain, &before, &after}) verify(*program);
  const Lowering lowering = lowering_on(*device);
  const std::int64_t all = slot_bytes(make_plan(plain, lowering, 2));
  EXPECT_LT(slot_bytes(make_plan(before, lowering, 2)), all);
  EXPECT_LE(slot_bytes(make_plan(after, lowering, 2)), all);
}

TEST(Recompute, TwoChoicesForOneSegmentAddUp) {
  Chain chain;
  recompute(*chain.program, chain.block, {Kind::ops, {"gelu"}});
  EXPECT_EQ(chain.kept({}), value_bytes);
  recompute(*chain.program, chain.block, {Kind::full, {}});
  verify(*chain.program);
  EXPECT_EQ(chain.kept({}), 0);
}

TEST(Recompute, WhatChangesSomethingIsNeverRunAgain) {
  const Chain chain;
  EXPECT_NE(message_of([&] {
              recompute(*chain.program, chain.block, {Kind::ops, {"zero"}});
            }).find("cannot recompute op 'zero'"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              recompute(*chain.program, chain.block, {Kind::ops, {"gelus"}});
            }).find("did you mean 'gelu'"),
            std::string::npos);
  // The head's gradient leaves lm_head in forward: with everything allowed, that alone is kept.
  const Assembly assembly(tiny_recipe({}, recompute_strategy("segments = [\"head\"]")), plugins());
  const Program& program = assembly.program();
  for (const std::string& kind : kinds_again(assembly)) EXPECT_NE(kind, "lm_head");
  const Id head = program.segment_count() - 1;
  EXPECT_EQ(estimate_recompute(program, head, {}).kept_bytes, 4 * 16 * 32 * 4);
}

TEST(Recompute, BeforeBackwardItIsRefused) {
  Program program(std::make_shared<OpRegistry>(), Precision{}, ModelContext{2, 4});
  const ProgramRef ref(&program_api(), &program);
  const Segment s = ref.segment("a");
  s.op("gelu", {s.vector("x", {{"hidden", 6}}, zeros())});
  EXPECT_NE(message_of([&] { s.recompute(RecomputeMode::full); }).find("belongs in phase 'memory'"),
            std::string::npos);
}

struct Model {
  const char* name;
  std::vector<std::string> sets;
  const char* kinds;  // that are cheap to run again
};

const std::vector<Model> models = {
    {"gpt", {}, R"(["gelu", "layernorm", "dropout"])"},
    {"gpt dropout", {"model.dropout=0.1", "model.tied=false"}, R"(["gelu", "layernorm", "dropout"])"},
    {"llama", {"model.plugin=llama", "model.ffn=64", "model.kv_heads=2"}, R"(["swiglu", "rmsnorm"])"},
};

TEST(Recompute, FullKeepsNothingButWhatBlocksHandOn) {
  for (const Model& model : models) {
    const Assembly without(tiny_recipe(model.sets), plugins());
    const Assembly with(tiny_recipe(model.sets, recompute_strategy("mode = \"full\"")), plugins());
    EXPECT_GT(kept_by_block(without), 0) << model.name;
    EXPECT_EQ(kept_by_block(with), 0) << model.name;
    EXPECT_EQ(bytes_of(with, Region::boundary), bytes_of(without, Region::boundary)) << model.name;
    EXPECT_EQ(model_flops(with.unlowered()), model_flops(without.unlowered())) << model.name;
    EXPECT_GT(recomputed_flops(with.unlowered()), 0) << model.name;
  }
}

TEST(Recompute, TheEstimateIsWhatThePlanKeeps) {
  const Assembly assembly(tiny_recipe({"model.hidden=64", "model.seq=64"}), plugins());
  const Id block = 2;
  ASSERT_EQ(assembly.unlowered().segment(block).name, "block");
  EXPECT_EQ(estimate_recompute(assembly.unlowered(), block, {}).kept_bytes, kept_by_block(assembly));
  const Assembly less(tiny_recipe({"model.hidden=64", "model.seq=64"},
                                  recompute_strategy("mode = \"selective\"\nops = [\"layernorm\"]")),
                      plugins());
  const RecomputeEstimate estimate =
      estimate_recompute(assembly.unlowered(), block, {Kind::ops, {"layernorm"}});
  EXPECT_EQ(estimate.kept_bytes, kept_by_block(less));
  EXPECT_LT(estimate.kept_bytes, kept_by_block(assembly));
  EXPECT_GT(estimate.cost.bytes, 0);
  EXPECT_EQ(estimate.cost.flops, 0);
}

TEST(Recompute, ThePlannedCostGrowsByWhatRunsAgain) {
  const auto backward_flops = [](const Assembly& assembly) {
    double flops = 0;
    for (const PlannedFunction& function : assembly.plan().functions)
      if (function.kind == FunctionKind::backward &&
          assembly.unlowered().segment(function.segment).name == "block")
        flops += function.cost.flops;
    return flops;
  };
  const Assembly without(tiny_recipe(), plugins());
  const Assembly with(tiny_recipe({}, recompute_strategy("")), plugins());
  EXPECT_DOUBLE_EQ(2 * (backward_flops(with) - backward_flops(without)), recomputed_flops(with.unlowered()));
}

TEST(Recompute, SelectiveTakesTheKindsThatAreNamed) {
  for (const Model& model : models) {
    const std::string options = std::string("mode = \"selective\"\nops = ") + model.kinds;
    std::string kinds = options;
    if (model.sets.empty() || model.sets[0] != "model.dropout=0.1") {
      const auto at = kinds.find(", \"dropout\"");
      if (at != std::string::npos) kinds.erase(at, 11);
    }
    const Assembly without(tiny_recipe(model.sets), plugins());
    const Assembly with(tiny_recipe(model.sets, recompute_strategy(kinds)), plugins());
    EXPECT_GT(kept_by_block(with), 0) << model.name;
    EXPECT_LT(kept_by_block(with), kept_by_block(without)) << model.name;
    for (const std::string& kind : kinds_again(with))
      EXPECT_NE(kinds.find('"' + kind + '"'), std::string::npos) << model.name << ' ' << kind;
  }
}

TEST(Recompute, BadOptionsAreNamed) {
  const auto message = [](const std::string& options) {
    return message_of([&] { Assembly(tiny_recipe({}, recompute_strategy(options)), plugins()); });
  };
  EXPECT_NE(message("mode = \"selective\"").find("needs to know which ops"), std::string::npos);
  EXPECT_NE(message("ops = [\"gelu\"]").find("ops goes with mode = \"selective\" only"), std::string::npos);
  EXPECT_NE(message("mode = \"selective\"\nops = [\"swiglu\"]").find("forward has no 'swiglu'"),
            std::string::npos);
  EXPECT_NE(message("segments = [\"blok\"]").find("the model has no segment 'blok'"), std::string::npos);
}

TEST(Recompute, AModelOfOneLayerHasOneToRecompute) {
  const Assembly without(tiny_recipe({"model.layers=1"}), plugins());
  const Assembly with(tiny_recipe({"model.layers=1"}, recompute_strategy("")), plugins());
  EXPECT_GT(kept_by_block(without), 0);
  EXPECT_EQ(kept_by_block(with), 0);
}

// ---------------------------------------------------------------- budget

const std::vector<std::string> larger = {"model.layers=6", "model.seq=64"};

Recipe larger_recipe(const std::string& options, std::int64_t memory) {
  std::vector<std::string> sets = larger;
  if (memory) sets.push_back("device.memory=" + std::to_string(memory) + "B");
  return tiny_recipe(sets, options.empty() ? "" : recompute_strategy(options));
}

std::int64_t total(const std::string& options, std::int64_t memory = 0) {
  return Assembly(larger_recipe(options, memory), plugins()).plan().layout.memory.total();
}

TEST(RecomputeBudget, TakesNoMoreThanItMust) {
  const std::int64_t none_needs = total(""), full_needs = total("mode = \"full\"");
  ASSERT_LT(full_needs, none_needs);
  const Assembly fits(larger_recipe("mode = \"budget\"", none_needs), plugins());
  EXPECT_EQ(recomputed_text(fits.unlowered()), "nothing");
  EXPECT_NE(plan_text(fits, {}).find("recompute   nothing\n"), std::string::npos) << plan_text(fits, {});
  EXPECT_EQ(fits.plan().layout.memory.total(), none_needs);

  double before = 0;
  std::set<std::string> chosen;
  for (int step = 1; step <= 4; ++step) {
    const std::int64_t limit = none_needs - step * (none_needs - full_needs) / 4;
    const Assembly assembly(larger_recipe("mode = \"budget\"", limit), plugins());
    EXPECT_LE(assembly.plan().layout.memory.total(), limit);
    const double flops = recomputed_flops(assembly.unlowered());
    EXPECT_GE(flops, before);
    before = flops;
    chosen.insert(recomputed_text(assembly.unlowered()));
    EXPECT_NE(plan_text(assembly, {}).find("recompute   " + recomputed_text(assembly.unlowered())),
              std::string::npos);
  }
  EXPECT_GE(chosen.size(), 2u);  // something between nothing and everything
}

TEST(RecomputeBudget, ChoicesGrowFromTheCheapest) {
  const Assembly assembly(larger_recipe("mode = \"budget\"", 0), plugins());
  const std::vector<RecomputeChoice> choices = recompute_choices(assembly.unlowered());
  ASSERT_GE(choices.size(), 4u);
  EXPECT_EQ(choices.front().kind, Kind::nothing);
  EXPECT_EQ(choices.back().kind, Kind::full);
  std::int64_t kept = estimate_recompute(assembly.unlowered(), 2, {}).kept_bytes;
  for (std::size_t i = 1; i + 1 < choices.size(); ++i) {
    ASSERT_EQ(choices[i].op_kinds.size(), i);
    const std::int64_t now = estimate_recompute(assembly.unlowered(), 2, choices[i]).kept_bytes;
    EXPECT_LT(now, kept);
    kept = now;
  }
  const std::vector<std::string>& first_two = choices[2].op_kinds;  // no FLOPs before FLOPs
  EXPECT_EQ(std::set<std::string>(first_two.begin(), first_two.end()),
            (std::set<std::string>{"gelu", "layernorm"}));
}

TEST(RecomputeBudget, WhatCannotFitIsRefusedWithNumbers) {
  const std::string message =
      message_of([] { Assembly(larger_recipe("mode = \"budget\"", 100 * 1024), plugins()); });
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  EXPECT_NE(message.find(size(total("")) + ", " + size(total("mode = \"full\"")) + " with full recompute"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("100.00 KiB may be used"), std::string::npos) << message;
}

}  // namespace
}  // namespace prun::test::recompute_test
