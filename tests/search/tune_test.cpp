// The search as a whole: what comes out is a recipe that runs, and the same one each time.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/text.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/forecast.hpp"
#include "inspect/verify.hpp"
#include "support/layouts.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "tune/tune_verb.hpp"
#include "tuned.hpp"

namespace prun::test {
namespace {

TEST(Tune, ResultSaysEverythingAndIsPlannedAsItWas) {
  const TuneResult result = tuned(tiny_recipe(open()), request_for(4));
  ASSERT_FALSE(result.best.empty());
  EXPECT_TRUE(result.best.front().proven);
  const Recipe recipe = read(result.recipe);
  EXPECT_EQ(mesh_of(recipe).world(), 4);
  EXPECT_GT(recipe.integer("batch.micro"), 0);
  EXPECT_NE(recipe.text("batch.order"), "auto");
  const Assembly assembly(recipe, plugins());
  EXPECT_EQ(assembly.plan().layout.memory.total() > 0, true);
  std::int64_t fullest = 0;
  for (const Plan& plan : assembly.plans()) fullest = std::max(fullest, assembly.bytes_in_memory_of(0, plan));
  EXPECT_EQ(fullest, result.best.front().planned.device_bytes);
  EXPECT_NE(result.recipe.find("# chosen by prun tune"), std::string::npos);
}

TEST(Tune, GivesTheSameAnswerTwiceOnAnyNumberOfThreads) {
  const Recipe recipe = tiny_recipe(open());
  TuneRequest request = request_for(8);
  const TuneResult two = tuned(recipe, request);
  request.threads = 1;
  const TuneResult one = tuned(recipe, request), again = tuned(recipe, request);
  ASSERT_EQ(one.best.size(), two.best.size());
  for (std::size_t i = 0; i < one.best.size(); ++i) {
    EXPECT_EQ(one.best[i].sets, two.best[i].sets);
    EXPECT_EQ(one.best[i].sets, again.best[i].sets);
    EXPECT_EQ(one.best[i].planned.step_seconds, two.best[i].planned.step_seconds);
  }
  EXPECT_EQ(one.recipe, two.recipe);
  EXPECT_EQ(one.looked_at, two.looked_at);
}

// The ten are in order, and none of them is beaten by a plain split of the batch.
TEST(Tune, TheBestAreInOrder) {
  const TuneResult result = tuned(tiny_recipe(open()), request_for(2));
  for (std::size_t i = 1; i < result.best.size(); ++i)
    EXPECT_LE(result.best[i - 1].planned.step_seconds, result.best[i].planned.step_seconds);
  const Recipe plain =
      tiny_recipe({"device.threads=1", "comm.default=meet", "batch.micro=2"}, data_parallel(2));
  const Prediction prediction = predict_step(Assembly(plain, plugins()), plugins(), made_up_costs());
  EXPECT_LE(result.best.front().planned.step_seconds, prediction.simulation.step_seconds);
}

TEST(Tune, WhatTheRecipeSaysStays) {
  const std::string more =
      "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n[[strategy]]\nplugin = "
      "'zero'\nstage = 2\n"
      "[[strategy]]\nplugin = 'data'\naxis = 'dp'\n";
  const TuneResult result =
      tuned(tiny_recipe({"batch.micro=1", "comm.default=meet", "device.threads=1"}, more), request_for(4));
  const Recipe recipe = read(result.recipe);
  EXPECT_EQ(recipe.integer("mesh.tp"), 2);
  EXPECT_EQ(recipe.integer("batch.micro"), 1);
  EXPECT_TRUE(recipe.flag("strategy.0.sequence"));
  EXPECT_EQ(recipe.integer("strategy.1.stage"), 2);
  EXPECT_EQ(recipe.integer("mesh.dp"), 2);
}

TEST(Tune, LeastMemoryTakesLessThanLeastTime) {
  const Recipe recipe = tiny_recipe(open());
  TuneRequest request = request_for(4);
  const TuneResult quick = tuned(recipe, request);
  request.goal = TuneGoal::memory;
  const TuneResult small = tuned(recipe, request);
  EXPECT_LE(small.best.front().planned.device_bytes, quick.best.front().planned.device_bytes);
  EXPECT_GE(small.best.front().planned.step_seconds, quick.best.front().planned.step_seconds);
}

// A larger batch sends as much for more tokens: it is taken where that is worth a hundredth, and no larger
// one.
TEST(Tune, MostTokensGrowTheBatchAsFarAsItPays) {
  const Recipe recipe = tiny_recipe(open({"batch.global=2"}));
  TuneRequest request = request_for(2);
  const TuneResult said = tuned(recipe, request);
  request.goal = TuneGoal::tokens;
  const TuneResult same = tuned(recipe, request);
  EXPECT_EQ(same.best.front().sets, said.best.front().sets) << "the batch stays unless it may grow";
  request.scope.most_batch = 256;
  const TuneResult grown = tuned(recipe, request);
  const std::int64_t global = read(grown.recipe).integer("batch.global");
  EXPECT_GT(global, 2);
  EXPECT_GT(grown.best.front().planned.tokens_per_second, said.best.front().planned.tokens_per_second);
  for (const TunedCandidate& one : grown.best)
    EXPECT_LE(one.planned.tokens_per_second, 1.0101 * grown.best.front().planned.tokens_per_second)
        << one.text;
}

// Nobody has the memory for plain copies: what frees it is added.
TEST(Tune, AddsWhatMakesItFit) {
  TuneRequest request = request_for(2);
  const std::int64_t free = tuned(tiny_recipe(open()), request).best.front().planned.device_bytes;
  request.goal = TuneGoal::memory;
  const std::int64_t least = tuned(tiny_recipe(open()), request).best.front().planned.device_bytes;
  const std::int64_t limit = (free + least) / 2;
  EXPECT_LT(limit, free);
  const TuneResult tight =
      tuned(tiny_recipe(open({detail::concat("device.memory=", limit, "B")})), request_for(2));
  for (const TunedCandidate& one : tight.best) EXPECT_LE(one.planned.device_bytes, limit) << one.text;
  const Assembly assembly(read(tight.recipe), plugins());
  EXPECT_EQ(assembly.mesh().world(), 2);
}

// Gradients of experts that one rank has alone need not travel.
TEST(Tune, ExpertsAreSharedOutWhereThatIsFaster) {
  const std::vector<std::string> sets = open({"model.plugin=llama", "model.experts=16", "model.choices=1",
                                              "model.expert_ffn=256", "model.layers=2", "batch.global=4"});
  const std::string data = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n";
  const auto shares = [](const TuneResult& result) {
    return read(result.recipe).resolved_toml().find("plugin = \"experts\"") != std::string::npos;
  };
  EXPECT_TRUE(shares(tuned(tiny_recipe(sets, data), request_for(2))));
  EXPECT_FALSE(shares(tuned(tiny_recipe(open(), data), request_for(2))));
}

// Not all or nothing.
TEST(Tune, StateLeavesTheDeviceInShares) {
  const TuneSpace space(tiny_recipe(open()), plugins(), {}, 1);
  const Candidate start = space.starts().front();
  std::set<std::string> shares;
  for (const Candidate& one : space.freed(start))
    for (const Candidate& move : space.moves(one))
      for (const std::string& set : space.sets(move))
        if (const std::size_t at = set.find("optimizer=device:"); at != std::string::npos)
          shares.insert(set.substr(at));
  EXPECT_EQ(shares, (std::set<std::string>{"optimizer=device:75, host:25", "optimizer=device:50, host:50",
                                           "optimizer=device:25, host:75"}));
}

// One option alone may free too little: the search begins with all of them, too.
TEST(Tune, MemoryIsFreedByAllOptionsAtOnce) {
  const TuneSpace space(tiny_recipe(open()), plugins(), {}, 1);
  const auto has = [](const std::vector<std::string>& sets, std::string_view set) {
    return std::any_of(sets.begin(), sets.end(), [&](const std::string& one) { return one.ends_with(set); });
  };
  bool alone = false, with_recomputation = false;
  for (const Candidate& one : space.freed(space.starts().front())) {
    const std::vector<std::string> sets = space.sets(one);
    bool all = true;
    for (const char* what : {"optimizer", "gradients", "parameters", "activations"})
      all = all && has(sets, detail::concat(what, "=host"));
    if (all) (has(sets, "mode=full") ? with_recomputation : alone) = true;
  }
  EXPECT_TRUE(alone);
  EXPECT_TRUE(with_recomputation);
}

TEST(Tune, NothingThatFitsIsRefusedWithWhatWasTried) {
  const std::string said =
      refusal_of([] { tuned(tiny_recipe(open({"device.memory=1KiB"})), request_for(2)); });
  EXPECT_NE(said.find("ways to lay the step out over 2 ranks can be taken"), std::string::npos) << said;
  EXPECT_NE(said.find("need more memory than there is"), std::string::npos) << said;
  EXPECT_NE(said.find("more ranks (--ranks), a smaller model"), std::string::npos) << said;
}

// The table knows sums over ranks alone, and neither halves of them nor what a pipeline sends.
CostTable costs_of_sums_alone() {
  CostTable table = made_up_costs();
  table.rates.front().within = {};
  table.exchanges[{CommKind::all_reduce, 2}] = {{{0, 1e-5}, {1 << 20, 1e-3}}};
  return table;
}

TEST(Tune, WaysThatTheCostTableHasNoFigureForAreCalledThat) {
  const TuneResult measured_all = tuned(tiny_recipe(open()), request_for(2));
  EXPECT_EQ(measured_all.unpriced.count, 0);
  const TuneResult result = tuned(tiny_recipe(open()), request_for(2), costs_of_sums_alone());
  EXPECT_GT(result.unpriced.count, 0);
  EXPECT_EQ(result.refusal.find("cost table"), std::string::npos) << result.refusal;
  const std::string said = to_text(result.unpriced);
  EXPECT_NE(said.find("a figure is missing: the cost table has nothing on "), std::string::npos) << said;
  EXPECT_NE(said.find("; prun bench comm --ranks 2 measures it. One of these ways: --set "),
            std::string::npos)
      << said;
  EXPECT_NE(tune_text(result, request_for(2)).find("\nunpriced    " + said + "\n"), std::string::npos);
}

TEST(Tune, WhereNoWayHasAllFiguresTheRefusalNamesOne) {
  const std::string said = refusal_of([] {
    CostTable table = costs_of_sums_alone();
    table.exchanges.clear();
    tuned(tiny_recipe(open()), request_for(2), table);
  });
  EXPECT_NE(said.find(" a figure is missing: the cost table has nothing on "), std::string::npos) << said;
  EXPECT_NE(said.find("prun bench comm --ranks 2 measures it"), std::string::npos) << said;
}

TEST(Tune, RanksThatTheMeshCannotHaveAreRefused) {
  const std::string said = refusal_of([] {
    tuned(tiny_recipe({"comm.default=meet"}, "[mesh]\ndp = 4\n[[strategy]]\nplugin = 'data'\n"),
          request_for(6));
  });
  EXPECT_NE(said.find("the recipe's mesh has 4 ranks, which 6 is no multiple of"), std::string::npos) << said;
  const std::string hosts = refusal_of([] {
    TuneRequest request = request_for(4);
    request.scope.hosts = 3;
    tuned(tiny_recipe(open()), request);
  });
  EXPECT_NE(hosts.find("4 ranks cannot be shared out over 3 hosts"), std::string::npos) << hosts;
}

TEST(Tune, AMissingMicrobatchIsRefusedWhereNobodyChoosesIt) {
  const std::string said = refusal_of([] { Assembly(tiny_recipe({"batch.micro=0"}), plugins()); });
  EXPECT_NE(said.find("batch.micro is missing"), std::string::npos) << said;
  EXPECT_NE(said.find("let prun tune choose it"), std::string::npos) << said;
}

// What is chosen computes what one rank does.
TEST(Tune, TheChoiceComputesWhatOneRankDoes) {
  const std::vector<std::string> fp64 = {"precision.compute=fp64", "precision.state=fp64"};
  for (const int ranks : {2, 4}) {
    const TuneResult result = tuned(tiny_recipe(open(fp64)), request_for(ranks));
    const LayoutVerdict verdict = verify_layout(read(result.recipe), plugins().places(), 2);
    EXPECT_TRUE(verdict.equal()) << result.best.front().text << ": " << to_text(verdict);
  }
}

TEST(Tune, SaysWhyInSentences) {
  TuneRequest request = request_for(2);
  request.why = true;
  const TuneResult result = tuned(tiny_recipe(open()), request);
  EXPECT_TRUE(any_has(result.why, "the best is bound by")) << join(result.why, "\n");
  EXPECT_TRUE(any_has(result.why, "the next one (")) << join(result.why, "\n");
  EXPECT_TRUE(any_has(result.why, "the ranks would give") || any_has(result.why, "one more rank would give"))
      << join(result.why, "\n");
  EXPECT_TRUE(any_has(result.why, "one more GiB")) << join(result.why, "\n");
  EXPECT_TRUE(any_has(result.why, "twice the links between ranks would give")) << join(result.why, "\n");
}

// A gather of parameters that are read from a drive first waits for the drive, and is no communication.
TEST(Tune, SharesAndReasonsAreThoseOfThePlan) {
  CostTable costs = made_up_costs();
  costs.machine = this_machine();
  costs.rates.front().drive_bytes_per_second = 1e6;
  const std::string drives =
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'zero'\nstage = 3\naxis = 'dp'\n[[strategy]]\nplugin = "
      "'data'\n" +
      offloaded_to_drives(temporary_folder(), true, true);
  TuneRequest request = request_for(2);
  request.why = true;
  const TuneResult result = tuned(tiny_recipe(open({"batch.micro=2"}), drives), request, costs);
  const std::filesystem::path file = temporary_folder() / "costs.json";
  std::ofstream(file) << to_json(costs);
  for (const TunedCandidate& one : result.best) {
    const Assembly assembly(
        read(tuned_toml(recipe_of(one, tiny_recipe(open(), drives), plugins()), one.sets)), plugins());
    const Forecast plan = forecast(assembly, plugins(), file);
    ASSERT_TRUE(plan.prediction) << plan.missing;
    EXPECT_EQ(one.planned.step_seconds, plan.prediction->simulation.step_seconds) << one.text;
    EXPECT_EQ(one.planned.exposed, plan.exposed) << one.text;
    EXPECT_GT(plan.exposed.drives.value_or(0), 0.5 * one.planned.step_seconds) << one.text;
    EXPECT_LE(plan.exposed.communication + plan.exposed.drives.value_or(0), one.planned.step_seconds * 1.001);
  }
  EXPECT_TRUE(any_has(result.why, "the best is bound by its drives: computing ")) << join(result.why, "\n");
}

// Buckets that nothing fills, options that change nothing: one row of each.
TEST(Tune, NoTwoRowsShowTheSame) {
  TuneRequest request = request_for(2);
  request.shown = 40;
  const TuneResult result = tuned(tiny_recipe(open()), request);
  std::set<std::pair<std::string, std::int64_t>> rows;
  for (const TunedCandidate& one : result.best)
    EXPECT_TRUE(rows.emplace(format("%.4g", one.planned.step_seconds), one.planned.device_bytes).second)
        << one.text;
  EXPECT_LT(result.best.size(), static_cast<std::size_t>(result.planned));
}

// ------------------------------------------------------------------- plugins of others

// One sequence a step cannot be shared out, and heads of odd number cannot either: what is left are its
// tokens.
TEST(Tune, AThirdPartysStrategyIsFoundWhereItWins) {
  const TuneResult result =
      tuned(tiny_recipe(open({"model.plugin=llama", "model.heads=1", "model.kv_heads=1", "model.vocab=61",
                              "model.ffn=63", "model.layers=1", "model.seq=66", "batch.global=1"})),
            request_for(2));
  EXPECT_TRUE(has(result.best.front().sets, "mesh.cut=2")) << join(result.best.front().sets, " ");
  EXPECT_TRUE(any_has(result.best.front().sets, "plugin=cut-sequence"));
  EXPECT_EQ(read(result.recipe).integer("mesh.cut"), 2);
}

TEST(Tune, OneThatSaysNothingIsLeftOutAndNamed) {
  const TuneResult result = tuned(tiny_recipe(open()), request_for(2));
  EXPECT_TRUE(
      any_has(result.left_out,
              "strategy 'spread' is not added: its note does not say what adding it comes to (trait tune)"))
      << join(result.left_out, "\n");
  for (const TunedCandidate& one : result.best) EXPECT_FALSE(any_has(one.sets, "plugin=spread"));
}

TEST(Tune, OptionsOfOtherMathematicsAreNeverVaried) {
  const TuneResult result = tuned(tiny_recipe(open({"model.plugin=llama", "model.kv_heads=2"}),
                                              "[[strategy]]\nplugin = 'cut-sequence'\n"),
                                  request_for(2));
  EXPECT_TRUE(any_has(result.left_out, "strategy 'cut-sequence' keeps its delay"));
  for (const TunedCandidate& one : result.best) EXPECT_FALSE(any_has(one.sets, "delay="));
}

}  // namespace
}  // namespace prun::test
