// What people are told while the machine is measured.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "measure/progress.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

TEST(PartsDone, SaysWhatIsLeftByWhatHasPassed) {
  EXPECT_EQ(PartsDone::text(4, 16, 8), "4 of 16, about 24 s left");
  EXPECT_EQ(PartsDone::text(15, 16, 30), "15 of 16, about 2 s left");
}

TEST(Busy, CoresAreCountedFromTheTicksOfAll) {
  // user nice system idle iowait irq softirq steal guest guest_nice
  const std::string before = "cpu  100 0 50 1000 10 0 0 0 0 0\ncpu0 1 1 1 1\n";
  EXPECT_DOUBLE_EQ(busy_cores(before, "cpu  130 0 60 1050 20 0 0 0 30 0\n", 4), 4 * 40.0 / 100);
  EXPECT_DOUBLE_EQ(busy_cores(before, "cpu  100 0 50 1100 10 0 0 0 0 0\n", 4), 0);
  EXPECT_DOUBLE_EQ(busy_cores(before, before, 4), 0);
  EXPECT_DOUBLE_EQ(busy_cores("", "", 4), 0);
  EXPECT_DOUBLE_EQ(busy_cores(before, "no ticks", 4), 0);
}

TEST(Busy, TheQuickGridSaysWhatItDoesAndServesAPrediction) {
  const std::string costs = (temporary_folder() / "quick.json").string();
  const Result result = prun({"bench", "kernels", "--quick", "--out", costs});
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("8 small models"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("20 small models"), std::string::npos) << result.out;
  const std::filesystem::path recipe = temporary_folder() / "quick.toml";
  std::ofstream(recipe) << tiny_recipe({}).resolved_toml();
  const Result plan = prun({"plan", recipe.string(), "--costs", costs, "--set", "device.threads=0"});
  EXPECT_EQ(plan.code, 0) << plan.out;
}

}  // namespace
}  // namespace prun::test
