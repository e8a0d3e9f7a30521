// Nobody reads what a run prints: a pager on its first page, a terminal after Ctrl-S. The run goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "runs.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::paused_test {
namespace {

// A pipe that holds little, as some do. With the buffer it has room for 900 lines of some 80 bytes.
constexpr int pipe_bytes = 4096;
const std::vector<std::string> many_lines = {"run.steps=1200", "run.save_every=1200", "run.hang_limit=120"};

TEST(Paused, OutputHoldsUpNoRank) {
  for (const int ranks : {1, 2}) {
    const std::string name = "unread-" + std::to_string(ranks);
    PrunRun run({recipe_file(name, ranks, many_lines)});
    run.process().hold(pipe_bytes);
    ASSERT_TRUE(run.seconds_until_gone(4 * patience)) << "it waits for a reader";
    EXPECT_EQ(run.process().end(), 0) << run.output();
    EXPECT_LT(count_of(run.output(), " | loss "), 1000) << "nobody had to be waited for";
    EXPECT_TRUE(std::filesystem::exists(out_folder(name) + "/step-00001200"));
  }
}

TEST(Paused, TheFirstSigintStopsAndSaves) {
  const std::string name = "unread-stop", log = out_folder(name) + "/log.jsonl";
  PrunRun run({layout_file(name, "[[observer]]\nplugin = \"jsonl\"\n", {"run.steps=10000000"})});
  run.process().hold(pipe_bytes);
  // Until nothing more can be printed.
  for (const auto start = Clock::now(); count_of(read_file(log), "\"loss\":") < 1000;) {
    ASSERT_LT(seconds_since(start), patience) << run.output();
    ::usleep(100'000);
  }
  run.process().signal(SIGINT);
  ASSERT_TRUE(run.seconds_until_gone()) << "it waits for a reader";
  EXPECT_EQ(run.process().end(), 130) << run.output();
  EXPECT_TRUE(std::filesystem::exists(out_folder(name) + "/latest"));
}

TEST(Paused, LinesThatFoundNoRoomAreCounted) {
  const std::string name = "unread-then-read";
  PrunRun run({recipe_file(name, 1, {"run.steps=10000000", "run.save_every=2000", "run.keep=1"})});
  run.process().hold(pipe_bytes);
  const std::string saved = out_folder(name) + "/latest";  // after more lines than pipe and buffer hold
  for (const auto start = Clock::now(); !std::filesystem::exists(saved); ::usleep(100'000))
    ASSERT_LT(seconds_since(start), patience);
  EXPECT_TRUE(run.process().says(" not shown: nobody read in time)\n")) << run.output();
  run.process().signal(SIGINT);
  EXPECT_EQ(run.process().end(), 130);
  EXPECT_TRUE(contains(run.output(), "go on with: prun ")) << run.output();
}

}  // namespace
}  // namespace prun::test::paused_test
