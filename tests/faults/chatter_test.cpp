// What libraries say goes to the run's folder, not between its steps.
#include <gtest/gtest.h>

#include "runs.hpp"
#include "support/free_port.hpp"
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

// Another launcher's ranks have no such file: there it is in the form of prun's messages.
TEST(Chatter, WarningsOfUcxLookLikeMessagesElsewhere) {
  const int port = free_port();
  const std::string recipe = recipe_file("chatter_elsewhere", 2, {"run.steps=5", "comm.default=ucx"});
  const auto variables = [&](int rank) {
    Variables all = torchrun_variables(rank, 2, port);
    all.push_back({"UCX_NOBODY_\tKNOWS", "1"});
    return all;
  };
  PrunRun ranks[] = {PrunRun({recipe}, variables(0)), PrunRun({recipe}, variables(1))};
  for (PrunRun& run : ranks) {
    EXPECT_EQ(run.process().end(), 0) << run.output();
    EXPECT_TRUE(contains(run.output(), "prun: UCX says: WARN: unused env variable: UCX_NOBODY_?KNOWS"))
        << run.output();
    EXPECT_FALSE(contains(run.output(), "UCX  WARN")) << run.output();
  }
}

}  // namespace
}  // namespace prun::test::chatter_test
