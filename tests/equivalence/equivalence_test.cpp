// Layouts compute what one rank computes: losses, gradients and parameters, over real communicators.
#include <gtest/gtest.h>

#include <mutex>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::equivalence_test {
namespace {

const std::vector<std::string> small = {"model.hidden=16", "model.heads=2",    "model.ffn=32",
                                        "model.seq=8",     "device.threads=1", "device.pin=false"};
const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Layout {
  const char* model;
  int ranks, accumulate, missing;  // samples short of a full batch
  bool ragged;
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) {
    return out << l.model << " dp" << l.ranks << " accumulate " << l.accumulate << " padding " << l.missing
               << (l.ragged ? " ragged" : "");
  }
};

Recipe recipe_of(const Layout& layout, const std::vector<std::string>& sets) {
  std::vector<std::string> all = joined(small, sets);
  const int micro = 2, global = layout.ranks * layout.accumulate * micro - layout.missing;
  all.push_back("model.plugin=" + std::string(layout.model));
  all.push_back("batch.micro=" + std::to_string(micro));
  all.push_back("batch.global=" + std::to_string(global));
  all.push_back("batch.pad=true");
  if (std::string_view(layout.model) == "llama") all.push_back("model.kv_heads=1");
  return layout.ragged ? ragged_recipe(all, data_parallel(layout.ranks))
                       : tiny_recipe(all, data_parallel(layout.ranks));
}

class DataParallel : public testing::TestWithParam<Layout> {};

TEST_P(DataParallel, EqualsOneRankInDoublePrecision) {
  const LayoutVerdict verdict = verify_layout(recipe_of(GetParam(), exact), plugins().places(), 20);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_EQ(verdict.ranks, GetParam().ranks);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

TEST_P(DataParallel, StartsAlikeInSinglePrecision) {
  const LayoutVerdict verdict = verify_layout(recipe_of(GetParam(), {}), plugins().places(), 3);
  EXPECT_FALSE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

INSTANTIATE_TEST_SUITE_P(Layouts, DataParallel,
                         testing::Values(Layout{"gpt", 1, 2, 0, false}, Layout{"gpt", 2, 1, 0, false},
                                         Layout{"gpt", 2, 4, 0, false}, Layout{"gpt", 3, 2, 1, false},
                                         Layout{"gpt", 4, 3, 0, false}, Layout{"gpt", 8, 1, 0, false},
                                         Layout{"gpt", 2, 2, 0, true}, Layout{"gpt", 3, 3, 2, true},
                                         Layout{"gpt", 8, 1, 3, true}, Layout{"llama", 2, 2, 0, false},
                                         Layout{"llama", 3, 1, 0, false}, Layout{"llama", 4, 4, 3, false},
                                         Layout{"llama", 8, 1, 0, true}));

TEST(DataParallel, RanksHoldTheSameBits) {
  const auto results = run_ranks(recipe_of({"gpt", 3, 2, 1, true}, {}), 5);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(DataParallel, TheSameRecipeTwiceGivesTheSameBits) {
  const Recipe recipe = recipe_of({"llama", 4, 2, 0, false}, {});
  EXPECT_EQ(run_ranks(recipe, 5), run_ranks(recipe, 5));
}

// What travels may be narrower than what is kept, or wider.
TEST(DataParallel, GradientsTravelInTheTypeThatTheRecipeSays) {
  const Layout layout{"gpt", 3, 2, 1, true};
  const LayoutVerdict wide =
      verify_layout(recipe_of(layout, {"precision.reduce=fp64"}), plugins().places(), 3);
  EXPECT_TRUE(wide.equal()) << to_text(wide);
  const LayoutVerdict narrow =
      verify_layout(recipe_of(layout, {"precision.reduce=bf16"}), plugins().places(), 3);
  EXPECT_LT(narrow.gradient.value, 1e-2) << to_text(narrow);
  EXPECT_GT(narrow.gradient.value, 1e-5) << to_text(narrow);
  const Assembly assembly(recipe_of(layout, {"precision.reduce=bf16"}), plugins());
  for (const PlannedFunction& function : assembly.plan().functions) {
    if (function.kind != FunctionKind::reduce) continue;
    int exchanges = 0;
    for (const PlannedStep& step : function.steps)
      if (step.exchange) {
        ++exchanges;
        EXPECT_EQ(step.exchange->dtype, DType::bf16);
      }
    EXPECT_EQ(exchanges, 1);
  }
}

TEST(DataParallel, ThePlanSaysWhatTheCommPluginCounts) {
  const Recipe recipe = recipe_of({"gpt", 3, 2, 0, false}, {});
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    for (int step = 0; step < 3; ++step) trainer.step();
    const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
    Communicators& communicators = *trainer.communicators();
    for (std::size_t q = 0; q < queues.size(); ++q) {
      if (!queues[q].communicates()) continue;
      const std::uint64_t planned =
          planned_needs(trainer.assembly().mesh(), trainer.assembly().plan(), trainer.assembly().rank(),
                        *communicators.queues()[q].comm, q)
              .bytes_sent;
      EXPECT_GT(planned, 0u);
      EXPECT_EQ(communicators.counters(q).bytes_sent, 3 * planned) << queues[q].name;
    }
  });
}

TEST(DataParallel, AFailureOfOneRankEndsAll) {
  const Recipe recipe = recipe_of({"gpt", 3, 1, 0, false}, {});
  const auto run = [&] {
    run_local_ranks(recipe, plugins().places(), [](Trainer& trainer) {
      for (int step = 0; step < 5; ++step) {
        if (trainer.assembly().rank() == 1 && step == 2) throw_error(ErrorCode::storage, "a planned failure");
        trainer.step();
      }
    });
  };
  try {
    run();
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a planned failure");
  }
}

}  // namespace
}  // namespace prun::test::equivalence_test
