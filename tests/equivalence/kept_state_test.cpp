// State that strategies keep (ProgramApi::state): checkpoints have it, it goes on over other numbers of ranks
// as it says, and what a strategy measures of each rank's own is right. That the examples equal one rank, in
// each layout, is in tests/cases/layout.
#include <array>
#include <cmath>

#include "support/coded_runs.hpp"
#include "support/tallies.hpp"

namespace prun::test::kept_state_test {
namespace {

const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64", "model.hidden=16",
                                        "model.heads=2",          "model.seq=8",          "batch.micro=1",
                                        "batch.global=8",         "device.threads=1",     "device.pin=false",
                                        "optimizer.clip=1"};

Recipe recipe_of(const std::string& text, const std::vector<std::string>& more) {
  std::vector<std::string> sets = exact;
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_recipe(sets, text);
}

// The strategy's section is the second, behind that of `data`.
Recipe powersgd(int ranks, const std::vector<std::string>& more) {
  return recipe_of(data_parallel(ranks) +
                       "[plugins]\nops = ['low-rank', 'orthonormal']\n[[strategy]]\nplugin = 'powersgd'\n",
                   more);
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9) << i;
}

TEST(KeptState, GoesOnWithTheSameBits) {
  const std::string out = (temporary_folder() / "kept-resume").string();
  const Recipe recipe = powersgd(2, {"run.out=" + out});
  Numbers through = trained(recipe, 5);
  trained(recipe, 2, true);
  for (std::vector<double>& numbers : through) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(recipe.with("run.resume", out), 3), through);
}

// Without the errors of both ranks, gradients would be others from the first step on.
TEST(KeptState, OfWhichRanksHaveSummandsIsSummedForOtherRanks) {
  const std::string out = (temporary_folder() / "kept-sum").string();
  trained(powersgd(2, {"run.out=" + out}), 3, true);
  const std::vector<double> two = trained(powersgd(2, {"run.resume=" + out}), 3).front();
  expect_near(trained(powersgd(1, {"run.resume=" + out}), 3).front(), two);
  expect_near(trained(powersgd(4, {"run.resume=" + out}), 3).front(), two);
}

TEST(KeptState, ThatACheckpointLacksBeginsAnewWhereThatIsSaid) {
  const std::string out = (temporary_folder() / "kept-new").string();
  trained(recipe_of(data_parallel(2), {"run.out=" + out}), 2, true);
  try {
    trained(powersgd(2, {"run.resume=" + out}), 0);
    FAIL() << "state was taken from nowhere";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("add --set run.allow_changed=strategy.1.plugin"),
              std::string::npos)
        << error.what();
  }
  const std::vector<double> losses =
      trained(powersgd(2, {"run.resume=" + out, "run.allow_changed=strategy.1.plugin"}), 20).front();
  EXPECT_LT(losses[19], losses[0]);  // a sketch of zeros would train nothing but vectors
}

TEST(KeptState, PlacedOverAnAxisGoesOnOverAnyNumberOfRanks) {
  const auto recipe = [](int ranks, const std::string& set) {
    return recipe_of(
        data_parallel(ranks) + "[plugins]\nops = ['adam-parts']\n[[strategy]]\nplugin = 'second-moment'\n",
        {set});
  };
  const std::string out = (temporary_folder() / "kept-parts").string();
  trained(recipe(2, "run.out=" + out), 2, true);
  const std::vector<double> two = trained(recipe(2, "run.resume=" + out), 3).front();
  expect_near(trained(recipe(1, "run.resume=" + out), 3).front(), two);
  expect_near(trained(recipe(4, "run.resume=" + out), 3).front(), two);
}

// Two stages hold the table, and the rest beside it: the checkpoint has one of both.
TEST(KeptState, BesideATiedTableIsOneInACheckpoint) {
  const auto recipe = [](const std::string& layout, const std::string& set) {
    return recipe_of(layout + "[plugins]\nops = ['grid']\n[[strategy]]\nplugin = 'error-feedback'\n",
                     {"model.tied=true", set});
  };
  const std::string out = (temporary_folder() / "kept-tied").string();
  trained(recipe(dp2pp2, "run.out=" + out), 3, true);
  const std::vector<double> go_on = trained(recipe(dp2pp2, "run.resume=" + out), 3).front(),
                            elsewhere = trained(recipe(data_parallel(2), "run.resume=" + out), 3).front();
  for (std::size_t step = 0; step < 3; ++step) EXPECT_NEAR(go_on[step], elsewhere[step], 1e-12);
}

// ---------------------------------------------------------------- what is measured

Recipe noise(const std::string& layout) {
  return recipe_of(layout + "[plugins]\nops = ['square-norm']\n[[strategy]]\nplugin = 'noise-scale'\n",
                   {"model.layers=4", "model.tied=false"});
}

// Returns, step by step, the sums over segments and layers of the ranks' own squares and of that of the sum.
std::vector<std::array<double, 2>> squares_of(const Recipe& recipe, std::size_t steps) {
  std::vector<std::array<double, 2>> sums(steps);
  const std::vector<StepTally> all = tallies_of(recipe, static_cast<int>(steps), ".noise");
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = 0; k < all[i].numbers.size(); ++k)
      sums[i / (all.size() / steps)][k % 2] += all[i].numbers[k];
  return sums;
}

void expect_same_squares(const Recipe& a, const Recipe& b) {
  const auto there = squares_of(a, 3), here = squares_of(b, 3);
  for (std::size_t s = 0; s < there.size(); ++s)
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_GT(here[s][k], 0);
      EXPECT_NEAR(there[s][k] / here[s][k], 1, 1e-9) << "step " << s << ", number " << k;
    }
}

TEST(MeasuredNoise, IsThatOfTheDataParallelRanksWhateverElseIsSplit) {
  const std::string data = data_parallel(2);
  expect_same_squares(noise(dp2tp2), noise(data));
  expect_same_squares(noise("[mesh]\ndp = 2\npp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\n"
                            "plugin = 'pipeline'\nschedule = 'zb-v'\nchunks = 2\n"),
                      noise(data));
}

// State that only measures changes nothing that is trained, so one rank is the reference.
TEST(KeptState, ThatVariesIsComparedWithAsManyRanksUnlessItSaysOtherwise) {
  EXPECT_EQ(verify_layout(noise(data_parallel(2)), plugins().places(), 2).reference, "one");
  EXPECT_EQ(
      verify_layout(
          recipe_of(dp2tp2 + "[plugins]\nops = ['grid']\n[[strategy]]\nplugin = 'error-feedback'\n", {}),
          plugins().places(), 2)
          .reference,
      "2 of axis dp");
}

TEST(MeasuredNoise, OfOneRankIsTheSquareOfItsNorm) {
  const Recipe recipe = noise(data_parallel(1));
  std::vector<double> norms;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    for (int i = 0; i < 3; ++i) norms.push_back(trainer.step().grad_norm);
  });
  const auto squares = squares_of(recipe, 3);
  for (std::size_t s = 0; s < norms.size(); ++s)
    for (const double square : squares[s]) EXPECT_NEAR(std::sqrt(square) / norms[s], 1, 1e-9) << s;
}

}  // namespace
}  // namespace prun::test::kept_state_test
