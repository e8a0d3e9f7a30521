// What may stand where a recipe says nothing.
#include <gtest/gtest.h>

#include <set>

#include "base/text.hpp"
#include "tuned.hpp"

namespace prun::test {
namespace {

TuneSpace space_of(const Recipe& recipe, std::int64_t ranks) {
  return {recipe, plugins(), TuneWish{}, ranks};
}

std::int64_t world(const Candidate& candidate) { return Mesh(candidate.mesh).world(); }

TEST(TuneSpace, StartsShareOutAllRanksInEveryWay) {
  const TuneSpace space = space_of(tiny_recipe(open({"batch.global=8"})), 4);
  std::set<std::string> all;
  for (const Candidate& start : space.starts()) {
    EXPECT_EQ(world(start), 4) << space.text(start);
    EXPECT_TRUE(all.insert(join(space.sets(start), " ")).second) << "twice: " << space.text(start);
  }
  EXPECT_TRUE(any_has({all.begin(), all.end()}, "mesh.dp=4 batch.micro=2"));
  EXPECT_TRUE(any_has({all.begin(), all.end()}, "mesh.pp=2 mesh.tp=2"));
}

// Sequences that do not divide over the ranks start nothing.
TEST(TuneSpace, TheBatchIsSharedOutEvenly) {
  for (const Candidate& start : space_of(tiny_recipe(open({"batch.global=6"})), 4).starts())
    for (const Axis& axis : start.mesh) EXPECT_FALSE(axis.name == "dp" && axis.extent == 4);
}

// As many times as the batch is said, and the most.
TEST(TuneSpace, TheBatchGrowsOnlyWhereThatIsWished) {
  const Recipe recipe = tiny_recipe(open({"batch.global=6"}));
  for (const Candidate& start : space_of(recipe, 2).starts()) EXPECT_EQ(start.global, 6);
  const TuneSpace space(recipe, plugins(), {.most_batch = 32}, 2);
  std::set<std::int64_t> starts, moves;
  for (const Candidate& start : space.starts()) starts.insert(start.global);
  EXPECT_EQ(starts, (std::set<std::int64_t>{6, 12, 24, 32}));
  const Candidate from = space.starts().front();
  for (const Candidate& move : space.moves(from)) moves.insert(move.global);
  EXPECT_EQ(moves, starts);
  EXPECT_TRUE(has(space.sets(from), "batch.global=6"));
  EXPECT_EQ(space.batches(from), 1);
  EXPECT_TRUE(any_has(space.left_out(), "whose rate a larger batch may want otherwise"));
  const std::string said = refusal_of([&] { TuneSpace(recipe, plugins(), {.most_batch = 4}, 2); });
  EXPECT_NE(said.find("batch.global is 6 and cannot grow to 4"), std::string::npos) << said;
}

TEST(TuneSpace, MovesDifferFromWhereTheyStart) {
  const TuneSpace space = space_of(tiny_recipe(open({"batch.global=8"})), 4);
  const Candidate from = space.starts().front();
  std::set<std::string> all;
  for (const Candidate& move : space.moves(from)) {
    EXPECT_NE(space.sets(move), space.sets(from));
    EXPECT_EQ(world(move), 4);
    all.insert(join(space.sets(move), " "));
  }
  EXPECT_GT(all.size(), 10U);
}

TEST(TuneSpace, OrdersAreThoseOfItsAxes) {
  const TuneSpace space = space_of(tiny_recipe(open({"batch.global=8"})), 8);
  for (const Candidate& start : space.starts()) {
    std::size_t axes = 0;
    for (const Axis& axis : start.mesh) axes += axis.extent > 1;
    const std::size_t orders = axes == 3 ? 6 : axes == 2 ? 2 : 1;
    EXPECT_EQ(space.orders(start).size() + 1, orders) << space.text(start);
  }
}

// The links between hosts are a hundred times slower: what exchanges most stays on one.
TEST(TuneSpace, HostsDecideOnTheOrderOfAxes) {
  const Recipe recipe = tiny_recipe(
      open({"batch.global=2", "batch.micro=1"}),
      "[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n[[strategy]]\nplugin = 'recompute'\n");
  TuneRequest request = request_for(4);
  request.wish.hosts = 2;
  const TuneResult result = tuned(recipe, request);
  EXPECT_EQ(result.ranks_of_host, 2);
  ASSERT_FALSE(result.best.empty());
  double worst = 0;
  for (const TunedCandidate& one : result.best) worst = std::max(worst, one.planned.step_seconds);
  EXPECT_LT(result.best.front().planned.step_seconds, worst);
}

}  // namespace
}  // namespace prun::test
