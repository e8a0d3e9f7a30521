// What libraries say goes to the run's folder, not between its steps.
#include <gtest/gtest.h>

#include "runs.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::chatter_test {
namespace {

TEST(Chatter, WarningsOfUcxAreTheRuns) {
  const Variables unused = {{"UCX_NOBODY_KNOWS", "1"}};
  PrunRun run({recipe_file("chatter", 2, {"run.steps=5"})}, unused);
  EXPECT_EQ(run.process().end(), 0) << run.output();
  EXPECT_FALSE(contains(run.output(), "UCX")) << run.output();
  const std::string log = read_file(out_folder("chatter") + "/ucx.log");
  for (const char* rank : {"rank 0: WARN: ", "rank 1: WARN: "}) EXPECT_TRUE(contains(log, rank)) << log;
  EXPECT_TRUE(contains(log, "UCX_NOBODY_KNOWS")) << log;
}

}  // namespace
}  // namespace prun::test::chatter_test
