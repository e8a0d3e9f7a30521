// What a device chooses by trying, and bits depend on, is chosen again by whoever goes on.
#include "train/checkpoint/checkpoint_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::kernel_choices_test {
namespace {

namespace fs = std::filesystem;

// A device that finds another of two ways the faster one on each day.
std::vector<std::string> on_day(int day, const fs::path& out, const std::string& resume = {}) {
  return {"device.plugin=cpu-async", "comm.default=meet-async", "device.tries=" + std::to_string(day),
          "batch.micro=1",           "run.out=" + out.string(), "run.resume=" + resume};
}

struct Trained {
  std::vector<double> losses, parameters;
  std::vector<std::string> notes;

  friend bool operator==(const Trained& a, const Trained& b) {
    return a.losses == b.losses && a.parameters == b.parameters;
  }
};

// The first rank's.
Trained train(const std::vector<std::string>& sets, int steps, const std::string& layout = {},
              bool save = false) {
  Trained trained;
  run_local_ranks(tiny_recipe(sets, layout), plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> losses = train_steps(trainer, steps);
    if (save) trainer.save();
    if (trainer.assembly().rank() == 0) trained = {losses, parameters_of(trainer), trainer.resume_notes()};
  });
  return trained;
}

class KernelChoice : public testing::Test {
 protected:
  fs::path out(const std::string& name) const { return folder_ / name; }

  const TempFolder folder_;
};

TEST_F(KernelChoice, ARunThatGoesOnHasTheBitsOfOneThatNeverStopped) {
  for (const std::string& layout : {std::string(), data_parallel(2)}) {
    const std::string name = layout.empty() ? "one" : "two";
    const Trained undisturbed = train(on_day(1, out(name + "-whole")), 6, layout);
    const Trained other_day = train(on_day(2, out(name + "-other")), 6, layout);
    ASSERT_NE(undisturbed.losses, other_day.losses) << "the day does not matter";
    train(on_day(1, out(name)), 3, layout, true);
    const Trained resumed = train(on_day(2, out(name), out(name)), 3, layout);
    EXPECT_EQ(resumed.parameters, undisturbed.parameters);
    EXPECT_EQ(resumed.losses, std::vector<double>(undisturbed.losses.begin() + 3, undisturbed.losses.end()));
    EXPECT_EQ(resumed.notes.size(), 1u);
  }
}

TEST_F(KernelChoice, TheManifestHasThoseOfEachRank) {
  train(on_day(1, out("run")), 1, data_parallel(2), true);
  const KernelChoices choices = read_manifest(out("run") / "step-00000001").choices;
  ASSERT_EQ(choices.texts.size(), 1u) << "both ranks run the same";
  EXPECT_EQ(choices.of, (std::vector<std::size_t>{0, 0}));
  EXPECT_NE(choices.texts[0].find("linear "), std::string::npos);
}

TEST_F(KernelChoice, WhatCannotBeChosenAgainIsSaid) {
  train(on_day(1, out("run")), 1, {}, true);
  const fs::path path = out("run") / "step-00000001" / manifest_name;
  Manifest manifest = read_manifest(path.parent_path());
  const std::size_t end = manifest.choices.texts[0].find('\n') + 1;
  manifest.choices.texts[0].erase(0, end);
  std::ofstream(path) << to_text(manifest);
  const std::vector<std::string> notes = train(on_day(2, out("run"), out("run")), 0).notes;
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.back(), "computes other bits: 1 of the kernels that were chosen by trying are others");
}

TEST(KernelChoices, ARankOfAnyLayoutHasItsOwnLinesFirst) {
  KernelChoices choices;
  EXPECT_EQ(choices.for_rank(3), "");
  for (const char* text : {"a=1\n", "b=2\n", "a=1\n"}) choices.add(text);
  EXPECT_EQ(choices.texts.size(), 2u);
  EXPECT_EQ(choices.for_rank(0), "a=1\nb=2\n");
  EXPECT_EQ(choices.for_rank(1), "b=2\na=1\n");
  EXPECT_EQ(choices.for_rank(4), "b=2\na=1\n");
}

}  // namespace
}  // namespace prun::test::kernel_choices_test
