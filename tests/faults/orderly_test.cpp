// What is wrong with a recipe, its data or its checkpoint ends a start in good order, time after time: the
// exit code, a sentence, and no rank that dies of the others' end.
#include <gtest/gtest.h>

#include "runs.hpp"

namespace prun::test::orderly_test {
namespace {

struct Mistake {
  std::string name;
  std::vector<std::string> sets;
  std::string sentence;  // a part of it
};

int trials() { return is_long() ? 50 : 3; }

// The folder of a run whose model has another width.
const std::string& another_width() {
  static const std::string folder = [] {
    PrunRun run(
        {recipe_file("narrow", 1, {"model.hidden=16", "model.heads=2", "run.steps=1", "run.save_every=1"})});
    EXPECT_EQ(run.process().end(), 0) << run.output();
    return out_folder("narrow");
  }();
  return folder;
}

std::vector<Mistake> mistakes() {
  return {{"data", {"data.path=/nowhere/at/all"}, "/nowhere/at/all"},
          {"width", {"run.resume=" + another_width()}, "the recipe makes it "},
          {"vocab", {"model.vocab=10"}, "outside of model.vocab = 10"}};
}

bool died(const std::string& output) {
  for (const char* sign : {"killed by signal", "terminate called", "Sanitizer", "Segmentation"})
    if (contains(output, sign)) return true;
  return false;
}

TEST(Orderly, OurLauncherEndsWithTheReason) {
  for (const Mistake& mistake : mistakes())
    for (const int ranks : {2, 3}) {
      const std::string recipe = recipe_file(mistake.name, ranks, mistake.sets);
      for (int trial = 0; trial < trials(); ++trial) {
        PrunRun run({recipe});
        ASSERT_EQ(run.process().end(), 2) << mistake.name << ", trial " << trial << ": " << run.output();
        ASSERT_TRUE(contains(run.output(), mistake.sentence)) << run.output();
        ASSERT_FALSE(died(run.output())) << run.output();
      }
    }
}

// Whoever learns of another rank's failure first ends because of that. Rank 0, which tells it to the others,
// waits a few seconds only for those that come later: it is the last to start.
TEST(Orderly, RanksThatOthersStartedEndWithTheReason) {
  for (const Mistake& mistake : mistakes())
    for (const int ranks : {2, 3}) {
      const std::string recipe = recipe_file(mistake.name + "-by-hand", ranks, mistake.sets);
      for (int trial = 0; trial < trials(); ++trial) {
        const int port = free_port();
        std::vector<PrunRun> runs;
        for (int rank = ranks; rank-- > 0;)
          runs.emplace_back(std::vector<std::string>{recipe}, torchrun_variables(rank, ranks, port));
        int with_the_reason = 0;
        for (PrunRun& run : runs) {
          const int code = run.process().end();
          ASSERT_TRUE(code == 2 || code == 12) << code << ": " << run.output();
          ASSERT_TRUE(contains(run.output(), mistake.sentence)) << run.output();
          ASSERT_FALSE(died(run.output())) << run.output();
          with_the_reason += code == 2;
        }
        ASSERT_GT(with_the_reason, 0) << mistake.name;
      }
    }
}

}  // namespace
}  // namespace prun::test::orderly_test
