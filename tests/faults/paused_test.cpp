// Nobody reads what a run prints: a pager on its first page, a terminal after Ctrl-S. The run goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "runs.hpp"

namespace prun::test {
namespace {

// Some 80 bytes a line: more than pipe and buffer hold.
const std::vector<std::string> many_lines = {"run.steps=6000", "run.save_every=6000", "run.hang_limit=20"};

TEST(Paused, OutputHoldsUpNoRank) {
  for (const int ranks : {1, 2}) {
    const std::string name = "unread-" + std::to_string(ranks);
    PrunRun run({recipe_file(name, ranks, many_lines)});
    ASSERT_TRUE(run.seconds_until_gone(120)) << "it waits for a reader";
    EXPECT_EQ(run.process().end(), 0) << run.output();
    EXPECT_TRUE(std::filesystem::exists(out_folder(name) + "/step-00006000"));
  }
}

TEST(Paused, TheFirstSigintStopsAndSaves) {
  const std::string name = "unread-stop";
  PrunRun run({recipe_file(name, 1, {"run.steps=10000000"})});
  ::sleep(2);  // until nothing more can be printed
  run.process().signal(SIGINT);
  ASSERT_TRUE(run.seconds_until_gone(20)) << "it waits for a reader";
  EXPECT_EQ(run.process().end(), 130) << run.output();
  EXPECT_TRUE(std::filesystem::exists(out_folder(name) + "/latest"));
}

TEST(Paused, LinesThatFoundNoRoomAreCounted) {
  const std::string name = "unread-then-read";
  PrunRun run({recipe_file(name, 1, {"run.steps=10000000", "run.save_every=5000", "run.keep=1"})});
  const std::string saved = out_folder(name) + "/latest";  // after more lines than pipe and buffer hold
  for (int tenths = 0; tenths < 600 && !std::filesystem::exists(saved); ++tenths) ::usleep(100'000);
  ASSERT_TRUE(std::filesystem::exists(saved));
  EXPECT_TRUE(run.process().says(" not shown: nobody read in time)\n")) << run.output();
  run.process().signal(SIGINT);
  EXPECT_EQ(run.process().end(), 130);
  EXPECT_TRUE(contains(run.output(), "go on with: prun ")) << run.output();
}

}  // namespace
}  // namespace prun::test
