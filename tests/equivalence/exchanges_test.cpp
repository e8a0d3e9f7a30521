// Layouts that exchange by all-to-all, whose ops prefer a dimension, that take maxima over ranks, and that
// share out state over several axes: each trains as one rank does, and sends what it is said to.
#include <gtest/gtest.h>

#include "inspect/one_rank.hpp"
#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::exchanges_test {
namespace {

const std::string data = "[[strategy]]\nplugin = 'data'\n",
                  tensor = "[[strategy]]\nplugin = 'tensor'\nsequence = true\n",
                  pipeline = "[[strategy]]\nplugin = 'pipeline'\n",
                  recomputed = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  // Sequences in parts, and heads where attention wants them whole.
    heads_in_turn = "[[strategy]]\nplugin = 'spread'\naxis = 'cp'\ndims = ['seq']\nops = ['heads']\n",
                  experts_over_dp =
                      "[[strategy]]\nplugin = 'spread'\naxis = 'dp'\ndims = []\nweights = ['experts']\n";

std::string zero(int stage, const std::string& axes, const std::string& more = "") {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\naxis = " + axes + "\n" + more;
}

std::string mixture(const std::string& options) {
  return "[[strategy]]\nplugin = 'mixture'\n" + options + "\n[plugins]\nops = ['mixture']\n";
}

Recipe recipe_of(const std::string& text, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = {"precision.compute=fp64", "precision.state=fp64", "batch.global=8",
                                   "batch.micro=1",          "model.heads=4",        "model.ffn=128",
                                   "device.threads=1",       "device.pin=false",     "optimizer.clip=1",
                                   "run.poison=true"};
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

void expect_equal(const std::string& text, const std::vector<std::string>& sets = {},
                  const std::vector<std::string>& exact = {}) {
  SCOPED_TRACE(text);
  const LayoutVerdict verdict =
      verify_layout(recipe_of(text, sets), plugins().places(), {.steps = 4, .bound = 1e-10, .exact = exact});
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

std::vector<PlannedExchange> exchanges_of(const Assembly& assembly, CommKind kind) {
  std::vector<PlannedExchange> list;
  for (const Call& call : assembly.plan().calls)
    for (const PlannedStep& step : assembly.plan().steps(call))
      if (step.exchange && step.exchange->kind == kind) list.push_back(*step.exchange);
  return list;
}

// ---------------------------------------------------------------- along another dimension

TEST(Exchanges, AttentionOnAPartOfTheHeadsTrainsAsOneRankDoes) {
  for (const char* model : {"gpt", "llama"}) {
    const std::vector<std::string> sets = {std::string("model.plugin=") + model};
    for (const char* ranks : {"2", "4"})
      expect_equal(std::string("[mesh]\ncp = ") + ranks + "\n" + heads_in_turn, sets);
    expect_equal("[mesh]\ndp = 2\ncp = 2\n" + data + heads_in_turn, sets);
    expect_equal("[mesh]\ncp = 2\ntp = 2\n" + tensor + heads_in_turn, sets);
    expect_equal("[mesh]\ntp = 2\ncp = 2\n" + heads_in_turn + tensor, sets);
    expect_equal("[mesh]\npp = 2\ncp = 2\n" + heads_in_turn + pipeline, sets);
    expect_equal("[mesh]\ncp = 2\n" + heads_in_turn + recomputed, sets);
    for (const int stage : {1, 2, 3})
      expect_equal("[mesh]\ncp = 2\n" + heads_in_turn + zero(stage, "'cp'"), sets);
  }
}

// Queries, keys and values there, the result back, and the same of their gradients: each rank keeps one block
// of n of what it has.
TEST(Exchanges, WhatGoesToTheHeadsAndBackIsSentOnceEachWay) {
  for (const std::int64_t n : {2, 4}) {
    const Assembly assembly(recipe_of("[mesh]\ncp = " + std::to_string(n) + "\n" + heads_in_turn), plugins());
    const Recipe& recipe = assembly.recipe();
    const std::int64_t elements = recipe.integer("model.seq") * recipe.integer("model.hidden"),
                       times = 8 * recipe.integer("model.layers") * assembly.batch().accumulate;
    const std::vector<PlannedExchange> swaps = exchanges_of(assembly, CommKind::all_to_all);
    ASSERT_EQ(static_cast<std::int64_t>(swaps.size()), times);
    std::int64_t sent = 0;
    for (const PlannedExchange& swap : swaps) sent += swap.count * (n - 1);
    EXPECT_EQ(sent, times * elements / n * (n - 1) / n);
    EXPECT_TRUE(exchanges_of(assembly, CommKind::all_gather).empty());
  }
}

// The comm plugins' counters say what the plan does.
TEST(Exchanges, ARankSendsWhatIsPlanned) {
  const Recipe recipe = recipe_of("[mesh]\ncp = 2\n" + heads_in_turn);
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const Plan& plan = trainer.assembly().plan();
    std::vector<std::uint64_t> before, planned(plan.queues.size(), 0);
    trainer.step();
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      before.push_back(trainer.communicators()->counters(q).bytes_sent);
    trainer.step();
    bool any = false;
    for (const Call& call : plan.calls)
      for (const PlannedStep& step : plan.steps(call))
        if (step.exchange) {
          const PlannedExchange& e = *step.exchange;
          const auto bytes = static_cast<std::uint64_t>(e.count * size_of(e.dtype));
          planned[static_cast<std::size_t>(call.queue)] +=
              bytes;  // of two: one other, or half an all-reduce twice
          any |= e.kind == CommKind::all_to_all;
        }
    EXPECT_TRUE(any);
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      EXPECT_EQ(trainer.communicators()->counters(q).bytes_sent - before[q], planned[q])
          << plan.queues[q].name;
  });
}

// ---------------------------------------------------------------- what an op prefers

TEST(Exchanges, ExpertsComeInFrontOfTheBatchWhicheverStrategyIsFirst) {
  const std::string experts = mixture("experts = 4");
  for (const std::string& both : {data + experts_over_dp, experts_over_dp + data}) {
    expect_equal("[mesh]\ndp = 2\n" + both + experts);
    expect_equal("[mesh]\ndp = 4\n" + both + experts);
    expect_equal("[mesh]\ndp = 2\ntp = 2\n" + both + tensor + experts);
    expect_equal("[mesh]\ndp = 2\ncp = 2\n" + both + heads_in_turn + experts);
    const Assembly assembly(recipe_of("[mesh]\ndp = 2\n" + both + experts), plugins());
    for (const Id id : assembly.program().parameters()) {
      const Value& value = assembly.program().value(id);
      EXPECT_EQ(value.on(0).is_sharded(), value.name == "experts.weight") << value.name;
    }
    for (const Id id : assembly.program().inputs())
      EXPECT_EQ(assembly.program().value(id).on(0), AxisPlacement::sharded("batch"));
  }
}

// ---------------------------------------------------------------- maxima, numbers

TEST(Exchanges, MaximaOverRanksAndMicrobatchesAreThoseOfOneRank) {
  const std::string all = mixture("shrink = true\nfold = true\npick = true\nexperts = 2");
  const std::vector<std::string> exact = {"block.pick.index"};
  for (const char* model : {"gpt", "llama"}) {
    const std::vector<std::string> sets = {std::string("model.plugin=") + model};
    for (const char* sequence : {"true", "false"}) {
      const std::string split = std::string("[[strategy]]\nplugin = 'tensor'\nsequence = ") + sequence + "\n";
      expect_equal("[mesh]\ntp = 2\n" + split + all, sets, exact);
      expect_equal("[mesh]\ndp = 2\ntp = 2\n" + data + split + all, sets, exact);
    }
    expect_equal("[mesh]\ndp = 2\n" + data + all, sets, exact);
    expect_equal("[mesh]\npp = 2\n" + pipeline + all, sets, exact);
    expect_equal("[mesh]\ndp = 2\npp = 2\ntp = 2\n" + data + pipeline + tensor + all, sets, exact);
    expect_equal("[mesh]\ncp = 2\n" + heads_in_turn + all, sets, exact);
  }
}

// What each axis counts alike has a twin, and twins come on top of each other, before stages are summed.
TEST(Exchanges, StagesOfAPipelineAddUpWithTwinsOverTwoAxes) {
  const std::string vocab = "[[strategy]]\nplugin = 'spread'\naxis = 'a'\ndims = ['vocab']\n";
  for (const std::string& more : {std::string(), mixture("fold = true")})
    expect_equal(
        "[mesh]\na = 2\npp = 2\ntp = 2\n" + pipeline + "[[strategy]]\nplugin = 'tensor'\n" + vocab + more,
        {"model.plugin=llama", "model.tied=false"});
}

TEST(Exchanges, AMaximumThatIsNeededInPartsIsExchangedInParts) {
  const Assembly assembly(recipe_of("[mesh]\ntp = 2\n" + tensor + mixture("shrink = true")), plugins());
  std::int64_t maxima = 0;
  for (const PlannedExchange& exchange : exchanges_of(assembly, CommKind::reduce_scatter))
    maxima += exchange.reduction == Reduction::max;
  EXPECT_EQ(maxima, assembly.recipe().integer("model.layers") * assembly.batch().accumulate);
}

// ---------------------------------------------------------------- parts over several axes

TEST(Exchanges, StateInPartsOverTwoAxesTrainsAsOneRankDoes) {
  for (const int stage : {1, 2, 3}) {
    expect_equal("[mesh]\ndp = 2\ncp = 2\n" + data + heads_in_turn + zero(stage, "['dp', 'cp']"));
    expect_equal("[mesh]\ncp = 2\ndp = 2\n" + data + heads_in_turn + zero(stage, "['dp', 'cp']"));
    expect_equal(
        "[mesh]\ndp = 2\ncp = 2\ntp = 2\n" + data + tensor + heads_in_turn + zero(stage, "['cp', 'dp']"),
        {"model.plugin=llama"});
    expect_equal("[mesh]\ndp = 2\npp = 2\ncp = 2\n" + data + pipeline + heads_in_turn +
                 zero(stage, "['dp', 'cp']"));
  }
  expect_equal("[mesh]\ndp = 2\ncp = 2\n" + data + heads_in_turn +
               zero(3, "['dp', 'cp']", "reduce = 'step'\n"));
}

// Replicas of ranks that keep state in parts: summed over both axes at once or one after the other.
TEST(Exchanges, StateInPartsOverReplicasTooIsThatOfPartsWithinReplicas) {
  const std::string both =
      "[mesh]\nrep = 2\ndp = 2\n" + data + "[[strategy]]\nplugin = 'data'\naxis = 'rep'\n";
  for (const int stage : {1, 2, 3})
    for (const char* axes : {"'dp'", "['dp', 'rep']"}) expect_equal(both + zero(stage, axes));
  const Assembly over(recipe_of(both + zero(1, "['dp', 'rep']")), plugins());
  for (const Bucket& bucket : over.program().buckets())
    EXPECT_EQ(over.program().local_elements(bucket.own_parameters) * 4, bucket.elements);
}

TEST(Exchanges, ExpertsKeepStateInPartsOverTheAxesThatSumThem) {
  const std::string experts = experts_over_dp + data + heads_in_turn + mixture("experts = 4");
  for (const int stage : {1, 2, 3}) {
    const std::string text = "[mesh]\ndp = 2\ncp = 2\n" + experts + zero(stage, "['dp', 'cp']");
    expect_equal(text);
    const Assembly assembly(recipe_of(text), plugins());
    const Program& program = assembly.program();
    const AxisId both = folded({0, 1});
    for (const Bucket& bucket : program.buckets()) {
      const bool of_experts = program.value(bucket.parameters.front()).name == "experts.weight";
      EXPECT_EQ(bucket.axis, of_experts ? AxisId{1} : both);
      EXPECT_EQ(program.local_elements(bucket.own_parameters) * program.mesh().extent(bucket.axis),
                bucket.elements);
    }
    expect_equal("[mesh]\ndp = 2\n" + experts_over_dp + data + mixture("experts = 4") + zero(stage, "'dp'"));
  }
}

// A parameter of its own is fetched beside those that come together from parts.
TEST(Exchanges, ExpertsOnTheHostAreFetchedBesideWhatIsGathered) {
  const std::string text = "[mesh]\ndp = 2\n" + experts_over_dp + data + mixture("experts = 4");
  for (const char* more : {"", "gradients = 'host'\nactivations = 'host'\n"})
    expect_equal(text + zero(3, "'dp'", "reduce = 'step'\n") +
                     "[[strategy]]\nplugin = 'offload'\nparameters = 'host'\n" + more,
                 {"batch.order=breadth_first"});
}

// Gradients of experts would be summed over cp once a step, those of all others after each microbatch.
// ---------------------------------------------------------------- what is refused, and what is compared

TEST(Exchanges, ASumOverAnAxisThatIsNotNamedIsRefusedWhereGradientsAreKeptInParts) {
  const std::string text =
      "[mesh]\ndp = 2\ncp = 2\n" + experts_over_dp + data + heads_in_turn + mixture("experts = 4");
  expect_equal(text + zero(1, "'dp'"));
  try {
    Assembly(recipe_of(text + zero(2, "'dp'")), plugins());
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("cannot shard the state of 'experts.weight': its gradient is summed over another "
                        "axis once a step"),
              std::string::npos)
        << error.what();
  }
}

TEST(Exchanges, OnePluginCarriesWhatGoesOverBothAxes) {
  const std::string text = "[mesh]\ndp = 2\ncp = 2\n" + data + heads_in_turn + zero(1, "['dp', 'cp']");
  try {
    Assembly(recipe_of(text + "[comm]\ndp = 'meet'\ncp = 'ucx'\n"), plugins());
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "cannot use comm.dp = \"meet\" and comm.cp = \"ucx\": some collectives are over both axes; name one "
        "plugin for both");
  }
}

// A name that is nothing's would compare nothing.
TEST(Exchanges, NumbersThatAreNamedMustBeThere) {
  const std::string text = "[mesh]\ndp = 2\n" + data + mixture("pick = true");
  const auto verdict = [&](const std::string& name) {
    return verify_layout(recipe_of(text), plugins().places(), {.steps = 1, .bound = {}, .exact = {name}});
  };
  EXPECT_TRUE(verdict("*.index").compares_numbers);
  try {
    verdict("block.pick.indes");
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "no value of whole numbers is called 'block.pick.indes'; did you mean 'block.pick.index'?; there "
        "are: block.pick.index");
  }
}

// Ranks whose samples are others pick others.
TEST(Exchanges, NumbersThatDifferAreFound) {
  const WrittenNumbers whole = {
      {"block.0.pick.index, microbatch 0", {{0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}}}};
  const std::vector<std::int64_t> second = {3, 4, 5}, turned = {5, 3, 4};
  EXPECT_EQ(unequal(whole, {{"block.0.pick.index, microbatch 0", {second, {4, 5, 6}}}}).count, 0);
  EXPECT_EQ(unequal(whole, {{"block.0.pick.index, microbatch 0", {turned, {6, 4, 5}}}}).count, 0);
  const UnequalNumbers found = unequal(whole, {{"block.0.pick.index, microbatch 0", {second, {4, 9, 9}}}});
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.where, "block.0.pick.index, microbatch 0, element 4");
  EXPECT_EQ(unequal(whole, {{"block.1.pick.index, microbatch 0", {second, {4, 5, 6}}}}).count, 1);
}

}  // namespace
}  // namespace prun::test::exchanges_test
