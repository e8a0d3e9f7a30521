// Saves that are written while training goes on.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::saver_test {
namespace {

namespace fs = std::filesystem;

class Saver : public testing::TestWithParam<Target> {
 protected:
  Recipe recipe(const std::string& out, const std::string& layout,
                const std::vector<std::string>& sets = {}) {
    return tiny_recipe(with(with(GetParam().sets, sets), {"run.out=" + (folder_ / out)}), layout);
  }
  const TempFolder folder_;
  const std::string zero_ = data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n";
};

TEST_P(Saver, WhatIsSavedIsOfItsStepHoweverFarTrainingIs) {
  for (const std::string& layout : {std::string(), data_parallel(2), zero_}) {
    run_local_ranks(recipe("beside", layout), plugins().places(), [&](Trainer& trainer) {
      train_steps(trainer, 2);
      trainer.begin_save();
      trainer.run(6, [](const StepResult&) {});
      trainer.finish_save();
      EXPECT_EQ(trainer.saved().has_value(), trainer.assembly().rank() == 0);
      EXPECT_FALSE(trainer.saved()) << "told twice";
      trainer.save();
    });
    run_local_ranks(recipe("between", layout), plugins().places(), [&](Trainer& trainer) {
      train_steps(trainer, 2);
      trainer.save();
      train_steps(trainer, 6);
      trainer.save();
    });
    for (const char* step : {"/step-00000002", "/step-00000008"})
      EXPECT_TRUE(saved_in(folder_ / "beside" + step) == saved_in(folder_ / "between" + step)) << step;
    EXPECT_EQ(read_latest(folder_ / "beside")->filename(), "step-00000008");
    for (const char* name : {"beside", "between"}) fs::remove_all(folder_ / name);
  }
}

// The next one waits for it.
TEST_P(Saver, SavesFollowEachOther) {
  run_local_ranks(recipe("run", zero_, {"run.keep=2"}), plugins().places(), [&](Trainer& trainer) {
    for (int i = 0; i < 4; ++i) {
      train_steps(trainer, 1);
      trainer.begin_save();
    }
    trainer.finish_save();
  });
  EXPECT_EQ(read_latest(folder_ / "run")->filename(), "step-00000004");
  EXPECT_FALSE(fs::exists(folder_ / "run/step-00000002"));
  EXPECT_FALSE(saved_in(folder_ / "run/step-00000003").empty());
}

// As where a rank has failed: nothing is left of what the others wait for.
TEST_P(Saver, WhatARunThatFailsWasSavingIsGivenUp) {
  try {
    run_local_ranks(recipe("run", zero_), plugins().places(), [&](Trainer& trainer) {
      train_steps(trainer, 1);
      trainer.save();
      train_steps(trainer, 1);
      trainer.begin_save();
      throw_error(ErrorCode::diverged, "a rank fails");
    });
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a rank fails");
  }
  const std::string latest = read_latest(folder_ / "run")->filename();
  EXPECT_FALSE(saved_in(folder_ / "run/" + latest).empty());
  for (const auto& entry : fs::directory_iterator(folder_ / "run"))
    EXPECT_FALSE(is_temporary_name(entry.path().filename().string())) << entry.path();
}

// Some time, and only where the first rank wishes it: all ranks save after the same step.
TEST_P(Saver, TheFirstRankRequestsASaveAndAllLearnIt) {
  for (const std::string& layout : {std::string(), zero_})
    run_local_ranks(recipe("run", layout), plugins().places(), [&](Trainer& trainer) {
      const bool first = trainer.assembly().rank() == 0;
      for (int step = 0; step < 4; ++step) {
        trainer.start(step >= 2, first && step % 2 == 1);
        const StepResult result = trainer.finish();
        EXPECT_EQ(result.save, step % 2 == 1) << step;
        EXPECT_EQ(result.stop, step >= 2) << step;
      }
    });
}

TEST_P(Saver, ARunSavesByTheClock) {
  const Recipe timed = recipe("timed", "", {"run.steps=40", "run.save_minutes=1e-9", "run.keep=3"});
  const Assembly assembly(timed, plugins());
  EXPECT_EQ(train(assembly, plugins(), ""), 0);
  EXPECT_EQ(read_latest(folder_ / "timed")->filename(), "step-00000040");
  EXPECT_GT(read_manifest(*read_latest(folder_ / "timed")).save, 10);
}

TEST_P(Saver, EachOfARunIsReportedThoughTheNextFollowsAtOnce) {
  const Recipe each = recipe("each", "", {"run.steps=12", "run.save_every=1"});
  const Assembly assembly(each, plugins());
  ASSERT_EQ(prun::train(assembly, plugins(), ""), 0);
  const std::string log = read_file(folder_ / "each/log.jsonl");
  for (std::int64_t step = 1; step <= 12; ++step)
    EXPECT_NE(log.find(checkpoint_path(folder_ / "each", step).string() + "\""), std::string::npos) << step;
}

TEST_P(Saver, ATrialLeavesNothing) {
  run_local_ranks(recipe("run", zero_), plugins().places(), [&](Trainer& trainer) {
    trainer.claim_folder();
    trainer.try_save();
    EXPECT_FALSE(trainer.saved());
  });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "run")) names.push_back(entry.path().filename());
  EXPECT_EQ(names, std::vector<std::string>{"run.id"});
}

INSTANTIATE_TEST_SUITE_P(Devices, Saver, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace prun::test::saver_test
