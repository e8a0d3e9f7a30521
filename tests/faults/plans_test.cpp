// Ranks that were started by hand and do not fit together are refused before the first step.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runs.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::plans_test {
namespace {

struct Pair {
  std::string first, second;  // outputs
};

// Two ranks, started as torchrun starts them, which both have to end with 2.
Pair refused(const std::vector<std::string>& first, const std::vector<std::string>& second, int world = 2) {
  const int port = free_port();
  PrunRun a(first, torchrun_variables(0, world, port)), b(second, torchrun_variables(1, world, port));
  EXPECT_EQ(a.process().end(), 2) << a.output();
  EXPECT_EQ(b.process().end(), 2) << b.output();
  EXPECT_EQ(count_of(a.output() + b.output(), "step 1/"), 0) << a.output() << b.output();
  return {a.output(), b.output()};
}

TEST(Plans, DifferentRecipesAreRefused) {
  const std::string recipe = recipe_file("plans", 2);
  for (const std::string& set :
       std::vector<std::string>{"model.layers=3", "batch.micro=2", "optimizer.clip=0.0", "optimizer.lr=1e-3",
                                "run.seed=7", "run.steps=21", "data.shuffle=false"}) {
    const Pair said = refused({recipe}, {recipe, "--set", set});
    const std::string key = set.substr(0, set.find('='));
    for (const std::string& text : {said.first, said.second}) {
      EXPECT_TRUE(contains(text, "rank 0 and rank 1 have different plans: " + key + " is ")) << text;
      EXPECT_TRUE(contains(text, "; start all ranks with the same recipe, the same --set and the same prun"))
          << text;
    }
  }
}

// How many cores a rank has is its own affair.
TEST(Plans, RanksWithUnequalThreadsTrainToTheSameBits) {
  const std::vector<std::string> sets = {"run.steps=20", "run.save_every=20"};
  const auto train = [&](const std::string& name, const char* threads) {
    const std::string recipe = recipe_file(name, 2, sets);
    const int port = free_port();
    PrunRun a({recipe, "--set", "device.threads=1"}, torchrun_variables(0, 2, port)),
        b({recipe, "--set", threads}, torchrun_variables(1, 2, port));
    EXPECT_EQ(a.process().end(), 0) << a.output();
    EXPECT_EQ(b.process().end(), 0) << b.output();
    return saved_tensors(out_folder(name));
  };
  EXPECT_TRUE(train("equal", "device.threads=1") == train("unequal", "device.threads=3")) << "other bits";
}

TEST(Plans, OtherInstructionsAreRefused) {
  DeviceInfo info;
  raise(cpu_device()->info(&info));
  if (info.arithmetic.view() == "isa = \"generic\"") GTEST_SKIP() << "this machine has one instruction set";
  if (!PRUN_TEST_ALL_SETS) GTEST_SKIP() << "this build has the kernels of one instruction set";
  const std::string recipe = recipe_file("isa", 2);
  const Pair said = refused({recipe}, {recipe, "--set", "device.isa=generic"});
  for (const std::string& text : {said.first, said.second}) {
    EXPECT_TRUE(contains(text, "would compute other bits: device.isa is ")) << text;
    EXPECT_TRUE(contains(text, "; give all ranks the same device.isa")) << text;
  }
}

// An older run in the folder stays where it is until all have come.
TEST(Plans, AnotherTokenIsSaid) {
  const std::string recipe = recipe_file("token", 2, {"run.hang_limit=60", "run.fresh=true"});
  const std::filesystem::path older = std::filesystem::path(out_folder("token")) / "latest";
  std::filesystem::create_directories(older.parent_path());
  std::ofstream(older) << "step-00000001";
  const int port = free_port();
  Variables other = torchrun_variables(1, 2, port);
  for (auto& [name, value] : other)
    if (name == "PRUN_TOKEN") value = "another token that is long enough as well";
  PrunRun b({recipe}, other), a({recipe}, torchrun_variables(0, 2, port));
  EXPECT_EQ(b.process().end(), 2) << b.output();
  EXPECT_TRUE(contains(b.output(), "its token is another one")) << b.output();
  const std::string sentence =
      "a process that calls itself rank 1 came with another token; give all ranks the same PRUN_TOKEN";
  EXPECT_TRUE(a.process().says("prun: " + sentence)) << a.output();
  EXPECT_EQ(a.process().end(), 2) << a.output();
  EXPECT_TRUE(contains(a.output(), "rank 1: it has not come; " + sentence)) << a.output();
  EXPECT_TRUE(std::filesystem::exists(older)) << a.output();
  EXPECT_FALSE(std::filesystem::exists(out_folder("token") + ".1")) << a.output();
}

TEST(Plans, AnotherWorldThanTheMeshIsRefused) {
  const std::string recipe = recipe_file("world", 3);
  const Pair said = refused({recipe}, {recipe});
  for (const std::string& text : {said.first, said.second})
    EXPECT_TRUE(contains(text, "torchrun started 2 ranks, the recipe's mesh has 3")) << text;
}

TEST(Plans, OneRankOfAMeshAloneIsRefused) {
  PrunRun run({recipe_file("alone", 3)}, torchrun_variables(0, 1, free_port()));
  EXPECT_EQ(run.process().end(), 2) << run.output();
  EXPECT_TRUE(contains(run.output(), "torchrun started 1 rank, the recipe's mesh has 3")) << run.output();
}

TEST(Plans, RanksThatDisagreeAboutTheWorldAreRefused) {
  const std::string recipe = recipe_file("worlds", 2);
  const int port = free_port();
  PrunRun b({recipe}, torchrun_variables(1, 3, port)), a({recipe}, torchrun_variables(0, 2, port));
  EXPECT_EQ(b.process().end(), 2) << b.output();
  EXPECT_TRUE(contains(b.output(), "its number of ranks is another one")) << b.output();
  EXPECT_EQ(a.process().end(0.2), -1) << "rank 0 waits for its rank 1: " << a.output();
}

}  // namespace
}  // namespace prun::test::plans_test
