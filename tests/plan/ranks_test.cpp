// What ranks must agree on.
#include <gtest/gtest.h>

#include <set>

#include "plan/proof/check_plan.hpp"
#include "plan/proof/check_ranks.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::ranks_test {
namespace {

struct Ranks : testing::Test {
  Ranks()
      : assembly(tiny_recipe({"batch.micro=1"}, data_parallel(2)), plugins()),
        first(assembly.plan()),
        second(assembly.plan()) {}

  std::string verdict() {
    const RankPlan ranks[] = {{0, &first}, {1, &second}};
    try {
      check_ranks(program(), ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  virtual const Program& program() const { return assembly.program(); }

  // Calls of a queue in the order of the plan.
  std::vector<std::size_t> calls_of(const Plan& plan, const std::string& queue) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < plan.calls.size(); ++i)
      if (plan.queues[static_cast<std::size_t>(plan.calls[i].queue)].name == queue) found.push_back(i);
    return found;
  }

  Assembly assembly;
  Plan first, second;
};

TEST_F(Ranks, EqualPlansAgree) { EXPECT_EQ(verdict(), ""); }

TEST_F(Ranks, AMissingExchangeIsNamed) {
  second.calls.erase(second.calls.begin() +
                     static_cast<std::ptrdiff_t>(calls_of(second, "dp.reduce").back()));
  EXPECT_NE(verdict().find("on 'dp.reduce' is all_reduce"), std::string::npos) << verdict();
  EXPECT_NE(verdict().find("missing for the other"), std::string::npos) << verdict();
}

TEST_F(Ranks, AnExchangeOfAnotherSizeIsNamed) {
  for (PlannedFunction& function : second.functions)
    for (PlannedStep& step : function.steps)
      if (step.exchange && function.kind == FunctionKind::reduce) ++step.exchange->count;
  EXPECT_NE(verdict().find("ranks 0 and 1: exchange 0 on 'dp.reduce'"), std::string::npos) << verdict();
}

// Each has a queue of its own; where they compete nevertheless, the proof that steps end finds it.
TEST_F(Ranks, CommunicatorsMayBeUsedInAnotherOrder) {
  const std::vector<std::size_t> scalars = calls_of(second, "dp"), gradients = calls_of(second, "dp.reduce");
  const auto at = [&](std::size_t i) { return second.calls.begin() + static_cast<std::ptrdiff_t>(i); };
  std::rotate(at(scalars.front()), at(scalars.front()) + 1, at(gradients.front()) + 1);
  EXPECT_EQ(verdict(), "");
}

TEST_F(Ranks, AFingerprintChangesWithThePlan) {
  const std::string before = fingerprint(assembly.program(), first);
  EXPECT_EQ(before, fingerprint(assembly.program(), second));
  EXPECT_EQ(before.size(), 64u);
  std::swap(second.calls[5], second.calls[6]);
  EXPECT_NE(before, fingerprint(assembly.program(), second));
}

// Workspaces grow with the threads; what ranks exchange does not.
TEST(Fingerprint, DoesNotDependOnThreads) {
  for (const char* name : {"3d", "pipeline", "recompute", "tensor", "zero"}) {
    std::set<std::string> prints;
    std::set<std::int64_t> sizes;
    for (const char* threads : {"device.threads=1", "device.threads=2", "device.threads=7"}) {
      const std::string file = std::string(PRUN_SOURCE_DIR "/configs/") + name + ".toml";
      const std::vector<std::string> sets = {"device.plugin=cpu", threads};
      const Assembly assembly(Recipe::load(file, sets, plugins().catalog()), plugins());
      prints.insert(assembly.fingerprint());
      sizes.insert(assembly.plan().layout.memory.total());
    }
    EXPECT_EQ(prints.size(), 1u) << name;
    EXPECT_EQ(sizes.size(), 3u) << name << ": scratch does not depend on threads any more";
  }
}

// Two stages of a pipeline.
struct StageRanks : Ranks {
  StageRanks()
      : recipe(tiny_recipe({"batch.micro=1", "model.tied=false"},
                           "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\n")),
        upstream(recipe, plugins(), 0),
        downstream(recipe, plugins(), 1) {
    first = upstream.plan();
    second = downstream.plan();
  }

  const Program& program() const override { return upstream.program(); }

  Recipe recipe;
  Assembly upstream, downstream;
};

TEST_F(StageRanks, ASendMeetsTheReceiveOfItsMicrobatch) {
  EXPECT_EQ(verdict(), "");
  const std::vector<std::size_t> sends = calls_of(first, "pp.forward.0");
  std::swap(first.calls[sends[1]], first.calls[sends[2]]);
  EXPECT_NE(verdict().find("exchange 1 on 'pp.forward.0' is send of"), std::string::npos) << verdict();
  EXPECT_NE(verdict().find("for microbatch 2"), std::string::npos) << verdict();
}

TEST_F(StageRanks, AReceiveThatNobodySendsIsNamed) {
  const std::vector<std::size_t> sends = calls_of(first, "pp.forward.0");
  first.calls.erase(first.calls.begin() + static_cast<std::ptrdiff_t>(sends.back()));
  EXPECT_NE(verdict().find("missing for one"), std::string::npos) << verdict();
}

TEST_F(StageRanks, AStageThatDoesNotWaitForWhatArrivesIsFound) {
  for (Call& call : second.calls)
    if (second.functions[static_cast<std::size_t>(call.function)].kind == FunctionKind::forward)
      call.waits.clear();
  EXPECT_THROW(check_plan(downstream.program(), second), Error);
}

}  // namespace
}  // namespace prun::test::ranks_test
