// The large recipes in virtual time: with every kernel and byte at a fixed price, somebody can always go on.
#include <gtest/gtest.h>

#include "sim/simulate.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

class UnitPrices final : public Prices {
 public:
  double kernel(const Program&, const PlannedStep&) override { return 1e-4; }
  double exchange(const PlannedExchange& exchange, std::int64_t, std::string_view) override {
    return 1e-5 + 1e-11 * static_cast<double>(exchange.count);
  }
};

void ends_in_virtual_time(const std::string& name, std::int64_t world, std::size_t stages) {
  const Recipe recipe = Recipe::load(std::string(PRUN_SOURCE_DIR) + "/configs/" + name + ".toml",
                                     std::vector<std::string>{"device.plugin=cpu"}, plugins().catalog());
  const Assembly assembly(recipe, plugins());
  ASSERT_EQ(assembly.mesh().world(), world);
  UnitPrices prices;
  const Simulation result = simulate(
      all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }), prices);
  EXPECT_EQ(result.ranks.size(), stages);  // one rank of each stage stands for all of it
  EXPECT_GT(result.step_seconds, 0);
}

TEST(LargeRecipes, Gpt3OnAThousandRanksEnds) { ends_in_virtual_time("gpt3-175b", 1024, 8); }
TEST(LargeRecipes, MtNlgOnTwoThousandRanksEnds) { ends_in_virtual_time("mt-nlg-530b", 2240, 35); }

}  // namespace
}  // namespace prun::test
