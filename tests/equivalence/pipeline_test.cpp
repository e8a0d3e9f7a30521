// Pipelines compute what one rank computes, whatever the schedule, and together with the other strategies.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "plan/proof/check_ranks.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::pipeline_test {
namespace {

struct Layout {
  std::string schedule;
  int ranks, chunks, microbatches;
  int dp, tp, zero;
  std::vector<std::string> sets;

  explicit Layout(const char* name, int pp = 2, int chunk_count = 1, int count = 4, int data = 1,
                  int tensor = 1, int stage = 0, std::vector<std::string> more = {})
      : schedule(name),
        ranks(pp),
        chunks(chunk_count),
        microbatches(count),
        dp(data),
        tp(tensor),
        zero(stage),
        sets(std::move(more)) {}

  friend std::ostream& operator<<(std::ostream& out, const Layout& l) {
    out << l.schedule << " pp" << l.ranks << " chunks " << l.chunks << " microbatches " << l.microbatches
        << " dp" << l.dp << " tp" << l.tp << " zero " << l.zero;
    for (const std::string& set : l.sets) out << ' ' << set;
    return out;
  }
};

// pp between the others, so that its ranks are neither neighbours nor farthest apart.
std::string strategies(const Layout& l) {
  std::ostringstream out;
  out << "[mesh]\ndp = " << l.dp << "\npp = " << l.ranks << "\ntp = " << l.tp << "\n";
  if (l.dp > 1) out << "[[strategy]]\nplugin = \"data\"\n";
  if (l.tp > 1) out << "[[strategy]]\nplugin = \"tensor\"\nsequence = true\n";
  out << "[[strategy]]\nplugin = \"pipeline\"\nschedule = \"" << l.schedule << "\"\nchunks = " << l.chunks
      << "\n";
  if (l.zero > 0) out << "[[strategy]]\nplugin = \"zero\"\nstage = " << l.zero << "\n";
  return out.str();
}

Recipe recipe_of(const Layout& l, const std::string& more = "") {
  std::vector<std::string> sets = {"model.hidden=16",
                                   "model.heads=2",
                                   "model.ffn=32",
                                   "model.seq=8",
                                   "model.layers=6",
                                   "model.tied=false",
                                   "device.threads=1",
                                   "device.pin=false",
                                   "precision.compute=fp64",
                                   "precision.state=fp64",
                                   "run.poison=true",
                                   "batch.micro=1",
                                   "batch.global=" + std::to_string(l.microbatches * l.dp)};
  sets.insert(sets.end(), l.sets.begin(), l.sets.end());
  return tiny_recipe(sets, strategies(l) + more);
}

class Pipeline : public testing::TestWithParam<Layout> {};

TEST_P(Pipeline, EqualsOneRankInDoublePrecision) {
  const LayoutVerdict verdict = verify_layout(recipe_of(GetParam()), plugins().places(), 4);
  EXPECT_EQ(verdict.ranks, GetParam().ranks * GetParam().dp * GetParam().tp);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

const std::vector<std::string> tied = {"model.tied=true"};
const std::vector<std::string> llama = {"model.plugin=llama", "model.kv_heads=1"};
const std::vector<std::string> tied_llama = {"model.plugin=llama", "model.tied=true"};

INSTANTIATE_TEST_SUITE_P(Schedules, Pipeline,
                         testing::Values(Layout{"1f1b", 2}, Layout{"1f1b", 4, 1, 8}, Layout{"gpipe", 2},
                                         Layout{"gpipe", 4}, Layout{"interleaved", 2, 2, 4},
                                         Layout{"interleaved", 4, 2, 8}, Layout{"interleaved", 2, 3, 6},
                                         Layout{"zb-h1", 2}, Layout{"zb-h1", 4, 1, 6},
                                         Layout{"zb-v", 2, 2, 5}, Layout{"zb-v", 4, 2, 8},
                                         Layout{"1f1b", 4, 1, 2}, Layout{"1f1b", 3, 1, 1}));

INSTANTIATE_TEST_SUITE_P(
    Models, Pipeline,
    testing::Values(Layout{"1f1b", 2, 1, 4, 1, 1, 0, llama}, Layout{"zb-h1", 4, 1, 4, 1, 1, 0, llama},
                    Layout{"1f1b", 2, 1, 4, 1, 1, 0, tied}, Layout{"gpipe", 4, 1, 4, 1, 1, 0, tied},
                    Layout{"interleaved", 2, 2, 4, 1, 1, 0, tied},
                    Layout{"zb-h1", 2, 1, 4, 1, 1, 0, tied_llama}, Layout{"zb-v", 2, 2, 4, 1, 1, 0, tied},
                    Layout{"1f1b", 2, 1, 4, 1, 1, 0, {"model.dropout=0.2"}}));

INSTANTIATE_TEST_SUITE_P(
    WithOthers, Pipeline,
    testing::Values(Layout{"1f1b", 2, 1, 4, 2}, Layout{"zb-h1", 2, 1, 4, 2}, Layout{"1f1b", 2, 1, 4, 1, 2},
                    Layout{"zb-v", 2, 2, 4, 1, 2}, Layout{"1f1b", 2, 1, 4, 2, 1, 1},
                    Layout{"1f1b", 2, 1, 4, 2, 1, 2}, Layout{"zb-h1", 2, 1, 4, 2, 1, 2},
                    Layout{"1f1b", 2, 1, 4, 2, 1, 3}, Layout{"interleaved", 2, 2, 4, 2, 1, 3},
                    Layout{"1f1b", 2, 1, 4, 2, 1, 0, tied}, Layout{"1f1b", 2, 1, 4, 2, 1, 1, tied},
                    Layout{"1f1b", 2, 1, 4, 2, 1, 2, tied}, Layout{"zb-v", 2, 2, 4, 2, 1, 2, tied},
                    Layout{"gpipe", 2, 1, 4, 2, 1, 3, tied_llama}, Layout{"zb-h1", 2, 1, 4, 2, 2, 3, tied},
                    Layout{"gpipe", 2, 1, 4, 1, 2, 0, tied}, Layout{"1f1b", 2, 1, 4, 2, 2, 1, tied_llama},
                    Layout{"zb-h1",
                           2,
                           1,
                           4,
                           2,
                           1,
                           1,
                           {"precision.compute=bf16", "precision.state=fp32", "model.tied=true"}}));

std::int64_t bytes_of(const Plan& plan, Region region) {
  return plan.layout.memory.bytes[static_cast<std::size_t>(region)];
}

TEST(Pipeline, EveryLayerLiesOnOneRankAndATiedTableOnTwo) {
  const Recipe recipe = recipe_of(
      Layout("interleaved", 2, 2, 4, 1, 1, 0, {"model.tied=true", "model.layers=7", "run.poison=false"}));
  std::map<std::string, int> holders;
  std::int64_t whole = 0;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const Assembly assembly(recipe, plugins(), rank);
    assembly.each_parameter(
        [&](Id id, std::int32_t instance) { ++holders[assembly.full_name(id, instance)]; });
    whole = assembly.parameters();
    EXPECT_LT(bytes_of(assembly.plan(), Region::parameter), whole * 8);
  }
  const Assembly single(one_rank_equivalent(recipe, 1), plugins());
  std::size_t parameters = 0;
  single.each_parameter([&](Id, std::int32_t) { ++parameters; });
  EXPECT_EQ(holders.size(), parameters);
  EXPECT_EQ(single.parameters(), whole);
  for (const auto& [name, count] : holders) EXPECT_EQ(count, name == "embedding.token" ? 2 : 1) << name;
}

TEST(Pipeline, KeepsNoMoreMicrobatchesThanTheScheduleHasAlive) {
  const Assembly early(recipe_of(Layout("gpipe", 2, 1, 8)), plugins()),
      late(recipe_of(Layout("1f1b", 2, 1, 8)), plugins());
  EXPECT_EQ(early.plan().chunks.at(0).slots, 8);
  EXPECT_EQ(late.plan().chunks.at(0).slots, 2);
  EXPECT_EQ(bytes_of(early.plan(), Region::slot), 4 * bytes_of(late.plan(), Region::slot));
}

TEST(Pipeline, ThePlanSaysWhatTheCommPluginCounts) {
  run_local_ranks(recipe_of(Layout("zb-v", 2, 2, 4, 2)), plugins().places(), [&](Trainer& trainer) {
    for (int step = 0; step < 2; ++step) trainer.step();
    Communicators& communicators = *trainer.communicators();
    const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
    for (std::size_t q = 0; q < queues.size(); ++q) {
      if (!queues[q].communicates()) continue;
      const std::uint64_t planned =
          planned_needs(trainer.assembly().mesh(), trainer.assembly().plan(), trainer.assembly().rank(),
                        *communicators.queues()[q].comm, q)
              .bytes_sent;
      EXPECT_EQ(communicators.counters(q).bytes_sent, 2 * planned) << queues[q].name;
    }
  });
}

TEST(Pipeline, RanksHaveTheSameFingerprintOfAllStages) {
  const Recipe recipe = recipe_of(Layout("1f1b", 3));
  const Assembly first(recipe, plugins(), 0), last(recipe, plugins(), 2);
  EXPECT_EQ(first.fingerprint(), last.fingerprint());
  EXPECT_NE(fingerprint(first.program(), first.plan()), fingerprint(last.program(), last.plan()));
  const Assembly other(recipe_of(Layout("gpipe", 3)), plugins(), 0);
  EXPECT_NE(first.fingerprint(), other.fingerprint());
}

TEST(Pipeline, TakesTheStagesThatAreAskedFor) {
  const Recipe recipe = recipe_of(Layout("1f1b", 2, 1, 4, 1, 1, 0, {"strategy.0.layers=[2,6]"}));
  EXPECT_EQ(Assembly(recipe, plugins(), 0).plan().chunks.at(0).last, 3);
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 2);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

TEST(Pipeline, AStageMayHaveNothingToTrain) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Recipe recipe = recipe_of(Layout(schedule, 2, 1, 4, 1, 1, 0, {"strategy.0.layers=[1,7]"}),
                                    "[[optimizer.group]]\nmatch = \"embedding*\"\nfrozen = true\n");
    const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 3);
    EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  }
}

}  // namespace
}  // namespace prun::test::pipeline_test
