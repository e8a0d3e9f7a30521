// What ranks hold alike is compared: no layout raises a false alarm, and a bit that one rank has otherwise is
// named with its tensor and the ranks.
#include "train/loop/replicas.hpp"

#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::replicas_test {
namespace {

// Flips a bit of what a rank holds of a tensor, by its full name.
void flip(Trainer& trainer, const std::string& name) {
  const Assembly& assembly = trainer.assembly();
  for (std::size_t i = 0; i < assembly.plan().instances.size(); ++i) {
    const auto instance = static_cast<std::int32_t>(i);
    if (assembly.plan().instances[i].is_stub()) continue;
    for (const Id value : assembly.program().segment(assembly.plan().instances[i].segment).values) {
      if (assembly.full_name(value, instance) != name) continue;
      std::byte first[1];
      trainer.memory().read(value, instance, 0, first);
      first[0] ^= std::byte{1};
      trainer.memory().write(value, instance, 0, first);
      return;
    }
  }
  FAIL() << "rank " << assembly.rank() << " has no " << name;
}

// What comparing says once `rank` holds another bit of `tensor`; nothing where all is well.
std::string comparing_says(const Recipe& recipe, const std::string& tensor, std::int64_t rank) {
  try {
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      for (int step = 0; step < 2; ++step) trainer.step();
      trainer.compare_replicas();
      if (trainer.assembly().rank() == rank) flip(trainer, tensor);
      trainer.compare_replicas();
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::diverged) << error.what();
    return error.what();
  }
  return "";
}

// All ranks have it alike, and not as it was compared.
TEST(ReplicasSaved, WhatChangedSinceItWasComparedIsNotSaved) {
  const TempFolder folder;
  const auto saving = [&](const std::string& flipped, const std::vector<std::string>& sets) {
    const Recipe recipe =
        tiny_recipe(with(with(on_cpu().sets, sets), {"run.out=" + (folder / "run")}), data_parallel(2));
    try {
      run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
        trainer.step();
        trainer.compare_replicas();
        if (!flipped.empty()) flip(trainer, flipped);
        trainer.save();
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::diverged) << error.what();
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<std::string> split = {"precision.compute=bf16", "precision.master=split"};
  for (const auto& sets : {std::vector<std::string>(), split})
    for (const char* name : {"block.1.qkv.weight", "embedding.token.m", "block.0.up.weight.v"})
      EXPECT_NE(saving(name, sets).find(std::string("what was read of '") + name), std::string::npos);
  EXPECT_NE(saving("block.1.qkv.weight.master", split).find("block.1.qkv.weight.master"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/latest"));
  EXPECT_EQ(saving("", {}), "");
}

std::string start_of(const std::string& text) { return text.substr(0, text.find(';')); }

class Replicas : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe() const {
    const auto& [layout, target] = GetParam();
    return tiny_recipe(with(layout.sets, target.sets), layout.text);
  }
};

TEST_P(Replicas, RanksThatTrainAlikeRaiseNoAlarm) {
  run_local_ranks(recipe(), plugins().places(), [&](Trainer& trainer) {
    for (int step = 0; step < 4; ++step) {
      trainer.step();
      trainer.compare_replicas();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Replicas,
                         testing::Combine(testing::ValuesIn(layouts()), testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

TEST(ReplicasDiffer, OneOfFourRanksIsNamed) {
  for (const Target& target : targets()) {
    const Recipe recipe = tiny_recipe(target.sets, data_parallel(4));
    EXPECT_EQ(start_of(comparing_says(recipe, "block.1.qkv.weight", 1)),
              "after step 2 'block.1.qkv.weight' is not the same on all ranks: ranks 0, 2, 3 against rank 1");
    EXPECT_EQ(start_of(comparing_says(recipe, "embedding.token.m", 3)),
              "after step 2 'embedding.token.m' is not the same on all ranks: ranks 0, 1, 2 against rank 3");
  }
}

TEST(ReplicasDiffer, MasterCopiesAndParametersBesidePartsAreCompared) {
  const std::string zero = data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = ";
  const std::vector<std::string> bf16 = with(on_cpu().sets, {"precision.compute=bf16"});
  EXPECT_EQ(start_of(comparing_says(tiny_recipe(bf16, data_parallel(2)), "block.0.up.weight.master", 0)),
            "after step 2 'block.0.up.weight.master' is not the same on all ranks: rank 0 against rank 1");
  for (const char* stage : {"1\n", "2\n"})
    EXPECT_EQ(start_of(comparing_says(tiny_recipe(bf16, zero + stage), "block.0.up.weight", 1)),
              "after step 2 'block.0.up.weight' is not the same on all ranks: rank 0 against rank 1");
}

// Of two axes, parts lie on one: the other has two of each.
TEST(ReplicasDiffer, PartsThatOtherRanksHoldAsWellAreNamedWithTheirElements) {
  const std::string text =
      "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
      "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n";
  const Recipe recipe = tiny_recipe(on_cpu().sets, text);
  const Assembly assembly(recipe, plugins());
  const auto& buckets = assembly.program().buckets();
  const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& one) {
    return assembly.program().value(one.parameters.front()).on(1).is_replicated();
  });
  ASSERT_NE(bucket, buckets.end());
  const std::string said = start_of(comparing_says(recipe, assembly.full_name(bucket->states.front(), 0), 1));
  EXPECT_EQ(
      said.rfind("after step 2 '" + assembly.full_name(bucket->parameters.front(), 0) + ".m', elements 0..",
                 0),
      0u)
      << said;
  EXPECT_NE(said.find(" is not the same on all ranks: rank 0 against rank 1"), std::string::npos) << said;
}

TEST(ReplicasDiffer, WhatAnAxisSplitsIsNamedWithItsSlice) {
  const std::string text =
      "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
      "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n";
  const std::string said =
      start_of(comparing_says(tiny_recipe(on_cpu().sets, text), "block.0.qkv.weight", 3));
  EXPECT_EQ(
      said,
      "after step 2 'block.0.qkv.weight' [2..3, 0..2, 0..7, 0..31] is not the same on all ranks: rank 1 "
      "against rank 3");
}

TEST(ReplicasDiffer, ATiedParameterIsComparedBetweenItsStages) {
  const std::string text =
      "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '1f1b'\n";
  EXPECT_EQ(start_of(comparing_says(tiny_recipe(on_cpu().sets, text), "embedding.token", 1)),
            "after step 2 'embedding.token' is not the same on all ranks: rank 0 against rank 1");
}

// Beside other gradients it would be summed in another order on each stage, as its place is another.
TEST(ReplicasAgree, ATiedTableIsSummedInTheSameOrderOnBothStages) {
  for (const int stage : {0, 1, 2, 3}) {
    std::string text =
        "[mesh]\ndp = 4\npp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'pipeline'\n";
    if (stage) text += "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
    const Recipe recipe =
        tiny_recipe(with(on_cpu().sets, {"model.hidden=64", "model.tied=true", "batch.micro=1",
                                         "batch.global=8", "comm.default=ucx", "comm.ucx.small_kib=1"}),
                    text);
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      for (int step = 0; step < 2; ++step) trainer.step();
      trainer.compare_replicas();
    });
  }
}

TEST(ReplicasDiffer, NobodyComparesWhereTheRecipeDoesNotWantIt) {
  const Recipe recipe = tiny_recipe(with(on_cpu().sets, {"run.check_replicas_every=0"}), data_parallel(2));
  EXPECT_EQ(comparing_says(recipe, "block.1.qkv.weight", 1), "");
}

}  // namespace
}  // namespace prun::test::replicas_test
