// The large recipes: in virtual time, with every kernel and byte at a fixed price, somebody can always go on;
// and those for one GPU fit it.
#include <gtest/gtest.h>

#include <algorithm>

#include "estimate/simulate.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"

namespace prun::test::large_test {
namespace {

class UnitCostModel final : public CostModel {
 public:
  double kernel(const Program&, const PlannedStep&) override { return 1e-4; }
  double exchange(const PlannedExchange& exchange, std::int64_t, std::string_view) override {
    return 1e-5 + 1e-11 * static_cast<double>(exchange.count);
  }
};

Recipe recipe_in_configs(const std::string& name, const std::vector<std::string>& sets) {
  return Recipe::load(std::string(PRUN_SOURCE_DIR) + "/configs/" + name + ".toml", sets, plugins().catalog());
}

void ends_in_virtual_time(const std::string& name, std::int64_t world, std::size_t stages) {
  const Recipe recipe = recipe_in_configs(name, {"device.plugin=cpu"});
  const Assembly assembly(recipe, plugins());
  ASSERT_EQ(assembly.mesh().world(), world);
  UnitCostModel cost_model;
  const Simulation result =
      simulate(all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
               cost_model);
  EXPECT_EQ(result.ranks.size(), stages);  // one rank of each stage stands for all of it
  EXPECT_GT(result.step_seconds, 0);
}

TEST(LargeRecipes, Gpt3OnAThousandRanksEnds) { ends_in_virtual_time("gpt3-175b", 1024, 8); }
TEST(LargeRecipes, MtNlgOnTwoThousandRanksEnds) { ends_in_virtual_time("mt-nlg-530b", 2240, 35); }

// Of parameters, gradients and optimizer state; and all of it on a GPU of 139 GiB, with 3 GiB for the
// process.
void fits_one_gpu(const std::string& name, const std::string& gradient, double bytes_a_parameter) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "built without CUDA";
  const Assembly assembly(recipe_in_configs(name, {"device.plugin=cuda", "precision.gradient=" + gradient}),
                          plugins());
  const Memory& memory = assembly.plan().layout.memory;
  double bytes = 0;
  for (const Region region : {Region::parameter, Region::gradient, Region::state})
    bytes += static_cast<double>(memory.bytes[static_cast<std::size_t>(region)]);
  EXPECT_NEAR(bytes / static_cast<double>(assembly.parameters()), bytes_a_parameter, 0.01);
  EXPECT_LE(memory.total(), std::int64_t{136} << 30);
}

// As published, and V3's biases of 58 routers, which are counted and not trained.
TEST(LargeRecipes, DeepSeeksHaveTheirParameters) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "built without CUDA";
  EXPECT_EQ(Assembly(recipe_in_configs("deepseek-v2-lite", {}), plugins()).parameters(), 15'706'484'224);
  const Assembly third(recipe_in_configs("deepseek-v3", {}), plugins());
  EXPECT_EQ(third.parameters(), 671'026'404'352 + 58 * 256);
  for (const Plan& plan : third.plans()) EXPECT_LE(plan.layout.memory.total(), std::int64_t{139} << 30);
}

TEST(LargeRecipes, EightBillionWithASplitMasterFitOneGpu) {
  fits_one_gpu("llama-8b", "fp32", 16);
  fits_one_gpu("llama-8b", "bf16", 14);
}
TEST(LargeRecipes, SevenBillionInBf16FitOneGpu) {
  fits_one_gpu("qwen2.5-7b", "fp32", 10);
  fits_one_gpu("qwen2.5-7b", "bf16", 8);
}

}  // namespace
}  // namespace prun::test::large_test
