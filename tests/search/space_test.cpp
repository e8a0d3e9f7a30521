// What may stand where a recipe says nothing.
#include <gtest/gtest.h>

#include <set>

#include "base/text.hpp"
#include "inspect/verify.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "tuned.hpp"

namespace prun::test {
namespace {

TuneSpace space_of(const Recipe& recipe, std::int64_t ranks) {
  return {recipe, plugins(), TuneScope{}, ranks};
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
TEST(TuneSpace, TheBatchGrowsOnlyWhereThatIsRequested) {
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
  EXPECT_NE(said.find("cannot grow the batch to 4 sequences: batch.global is 6 already"), std::string::npos)
      << said;
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
  request.scope.hosts = 2;
  const TuneResult result = tuned(recipe, request);
  EXPECT_EQ(result.ranks_of_host, 2);
  ASSERT_FALSE(result.best.empty());
  double worst = 0;
  for (const TunedCandidate& one : result.best) worst = std::max(worst, one.planned.step_seconds);
  EXPECT_LT(result.best.front().planned.step_seconds, worst);
}

std::vector<std::string> axes_of(const std::string& recipe) {
  std::vector<std::string> names;
  const Mesh mesh = mesh_of(read(recipe));
  for (const Axis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

// The recipe has what exchanges most across the hosts: the extents stay, their order on the ranks does not.
// What is found runs, and computes what one rank does.
TEST(TuneSpace, AnOrderThatIsTheWrongWayRoundIsTurnedWhereHostsDiffer) {
  const std::string strategies = "[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n";
  const std::vector<std::string> sets = open({"batch.global=4", "batch.micro=1", "precision.compute=fp64",
                                              "precision.state=fp64", "device.threads=1"});
  const Recipe wrong = tiny_recipe(sets, "[mesh]\ntp = 2\ndp = 2\n" + strategies),
               right = tiny_recipe(sets, "[mesh]\ndp = 2\ntp = 2\n" + strategies);
  TuneRequest request = request_for(4);
  request.scope.hosts = 2;
  const TuneResult turned = tuned(wrong, request), kept = tuned(right, request);
  EXPECT_EQ(axes_of(turned.recipe), (std::vector<std::string>{"dp", "tp"}));
  EXPECT_EQ(axes_of(kept.recipe), (std::vector<std::string>{"dp", "tp"}));
  EXPECT_EQ(turned.best.front().planned.step_seconds, kept.best.front().planned.step_seconds);
  EXPECT_TRUE(turned.best.front().proven);
  EXPECT_EQ(Assembly(read(turned.recipe), plugins()).mesh().extent(1), 2);
  const LayoutVerdict verdict = verify_layout(read(turned.recipe), plugins().places(), 2);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

// On one host all links are alike, so nothing is better than what the recipe says.
TEST(TuneSpace, TheRecipesOrderStaysWhereLinksAreAlike) {
  const Recipe recipe =
      tiny_recipe(open({"batch.global=4", "batch.micro=1"}),
                  "[mesh]\ntp = 2\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n");
  EXPECT_EQ(axes_of(tuned(recipe, request_for(4)).recipe), (std::vector<std::string>{"tp", "dp"}));
}

// Two axes of the same kind of traffic: each order takes as long.
TEST(TuneSpace, OfOrdersThatTakeAsLongTheRecipesIsTaken) {
  const Recipe recipe = tiny_recipe(open({"batch.global=4", "batch.micro=1"}),
                                    "[mesh]\nzz = 2\naa = 2\n[[strategy]]\nplugin = 'data'\naxis = 'zz'\n"
                                    "[[strategy]]\nplugin = 'data'\naxis = 'aa'\n");
  TuneRequest request = request_for(4);
  request.scope.hosts = 2;
  EXPECT_EQ(axes_of(tuned(recipe, request).recipe), (std::vector<std::string>{"zz", "aa"}));
}

// Where a recipe has what moves state elsewhere, each kind of it moves by itself, in whole and in part.
TEST(TuneSpace, EachKindOfStateMayLieElsewhere) {
  const TuneSpace space(tiny_recipe(open(), "[[strategy]]\nplugin = 'offload'\nparameters = 'device'\n"),
                        plugins(), {}, 1);
  std::set<std::string> shares;
  for (const Candidate& move : space.moves(space.starts().front()))
    for (const std::string& set : space.sets(move))
      for (const std::string key : {"activations=", "gradients=", "parameters="})
        if (const std::size_t at = set.find(key); at != std::string::npos) shares.insert(set.substr(at));
  EXPECT_EQ(shares,
            (std::set<std::string>{"activations=device", "activations=device:50, host:50", "activations=host",
                                   "gradients=device", "gradients=device:50, host:50", "gradients=host"}))
      << "what the recipe says is not varied";
}

}  // namespace
}  // namespace prun::test
