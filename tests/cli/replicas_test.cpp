// A rank of which one bit flips: the run ends before it is saved, with the exit code of what diverged.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// Two ranks, of which the second's qkv.bias is another after step 4.
Result train_flipped(const std::vector<std::string>& sets) {
  const std::string flips =
      "[plugins]\nops = ['flip']\n[[strategy]]\nplugin = 'flip'\nsegment = 'block'\ntensor = 'qkv.bias'\n"
      "layer = 1\nstep = 4\nrank = 1\n";
  std::vector<std::string> all = {"device.threads=1", "batch.micro=1", "run.steps=7"};
  all.insert(all.end(), sets.begin(), sets.end());
  const fs::path path = temporary_folder() / "flipped.toml";
  std::ofstream(path) << tiny_recipe(all, flips + data_parallel(2)).resolved_toml();
  return prun({path.string(), "--plugin-path", PRUN_TEST_PLUGINS "/test"});
}

const std::string differs = " 'block.1.qkv.bias' is not the same on all ranks: rank 0 against rank 1; ";

TEST(Replicas, ADifferenceEndsTheRunWhereRanksAreCompared) {
  const Result result = train_flipped({"run.check_replicas_every=3"});
  EXPECT_EQ(result.code, 15) << result.out;
  EXPECT_NE(result.out.find("after step 6" + differs), std::string::npos) << result.out;
}

TEST(Replicas, NothingThatDiffersIsSaved) {
  const Result result = train_flipped({"run.save_every=3"});
  EXPECT_EQ(result.code, 15) << result.out;
  EXPECT_NE(result.out.find("after step 6" + differs), std::string::npos) << result.out;
  EXPECT_TRUE(fs::exists(temporary_folder() / "run" / "step-00000003"));
  EXPECT_FALSE(fs::exists(temporary_folder() / "run" / "step-00000006"));
}

TEST(Replicas, WhoeverDoesNotCompareGoesOn) {
  EXPECT_EQ(train_flipped({"run.check_replicas_every=0", "run.save_every=3"}).code, 0);
}

}  // namespace
}  // namespace prun::test
