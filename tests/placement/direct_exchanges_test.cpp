// Exchanges along a dimension whose blocks lie well need no copies.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"

namespace prun::test::direct_exchanges_test {
namespace {

constexpr const char* sequence =
    "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\nsequence = true\n";

Assembly assembled(const std::vector<std::string>& sets, const std::string& text = sequence) {
  return Assembly(tiny_recipe(sets, text), plugins());
}

std::map<std::string, int> ops_of(const Program& program) {
  std::map<std::string, int> count;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id op : function) ++count[std::string(program.op(op).kind())];
  return count;
}

// Along the sequence, by pieces.
std::map<std::int64_t, int> exchanges_of(const Assembly& assembly) {
  std::map<std::int64_t, int> count;
  for (const PlannedFunction& function : assembly.plan().functions)
    for (const PlannedStep& step : function.steps)
      if (step.exchange && step.exchange->kind != CommKind::all_reduce) ++count[step.exchange->pieces];
  return count;
}

const std::vector<std::string> one = {"batch.micro=1"}, two = {"batch.micro=2"};
// A piece is 512 x 512 numbers of four bytes: 1 MiB.
const std::vector<std::string> large = {"batch.micro=2", "model.seq=1024", "model.hidden=512",
                                        "precision.compute=fp32"};

TEST(DirectExchanges, BlocksOfOneSampleAreThere) {
  const Assembly assembly = assembled(one);
  std::map<std::string, int> ops = ops_of(assembly.program());
  EXPECT_EQ(ops["block"] + ops["unblock"], 0);
  EXPECT_GT(ops["all_gather"], 0);
  EXPECT_GT(ops["reduce_scatter"], 0);
  EXPECT_EQ(exchanges_of(assembly).size(), 1u);
  EXPECT_GT(exchanges_of(assembly)[1], 0);
}

TEST(DirectExchanges, SmallBlocksOfSeveralSamplesAreCopied) {
  const Assembly assembly = assembled(two);
  std::map<std::string, int> ops = ops_of(assembly.program());
  EXPECT_EQ(ops["unblock"], ops["all_gather"]);
  EXPECT_EQ(ops["block"], ops["reduce_scatter"]);
  EXPECT_EQ(exchanges_of(assembly).size(), 1u);
}

// What the head sums by token is small in any case.
TEST(DirectExchanges, LargeOnesTravelOneByOne) {
  const Assembly assembly = assembled(large);
  std::map<std::string, int> ops = ops_of(assembly.program());
  const int copied = ops["block"] + ops["unblock"];
  EXPECT_LT(copied, ops["all_gather"] + ops["reduce_scatter"]);
  std::map<std::int64_t, int> exchanges = exchanges_of(assembly);
  EXPECT_EQ(exchanges[1], copied);
  EXPECT_EQ(exchanges[1] + exchanges[2], ops["all_gather"] + ops["reduce_scatter"]);
}

// The batch's own axis leaves one sample to each rank.
TEST(DirectExchanges, ARanksOwnPartDecides) {
  const Assembly assembly = assembled({"batch.micro=1", "mesh.dp=2", "batch.global=2"},
                                      std::string(sequence) + "[[strategy]]\nplugin = 'data'\naxis = 'dp'\n");
  std::map<std::string, int> ops = ops_of(assembly.program());
  EXPECT_EQ(ops["block"] + ops["unblock"], 0);
}

}  // namespace
}  // namespace prun::test::direct_exchanges_test
