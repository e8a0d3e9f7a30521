// Rates of drives that a recipe states: predictions go by them, several drives as several.
#include <gtest/gtest.h>

#include <algorithm>

#include "estimate/costs.hpp"
#include "estimate/forecast.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::drive_rates_test {
namespace {

class DriveRatesOfARecipe : public testing::Test {
 protected:
  // Returns the recipe's text with the optimizer on two folders, and what is stated of them.
  std::string on_two(const std::string& rates) const {
    return on(in_quotes(one) + ", " + in_quotes(other), rates);
  }
  std::string on_one(const std::string& rates) const { return on(in_quotes(one), rates); }

  Prediction predicted(const std::string& more) const {
    const Assembly assembly(tiny_recipe({"device.threads=1"}, more), plugins());
    return predict_step(assembly, plugins(), nothing_but_drives(assembly));
  }
  double seconds(const std::string& more) const { return predicted(more).simulation.step_seconds; }

  // Returns the pause of a save that copies all of it first: what is on drives is read from there.
  double pause_of_save(const std::string& more) const {
    const Assembly assembly(tiny_recipe({"run.save_every=2", "run.save_memory=all"}, more), plugins());
    return forecast(assembly, plugins(), {}).save.value().still;
  }

  std::string refusal(const std::string& more) const {
    try {
      const Assembly assembly(tiny_recipe({}, more), plugins());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      return error.what();
    }
    return "";
  }

 private:
  static std::string in_quotes(const TempFolder& folder) { return "'" + folder.path() + "'"; }
  static std::string on(const std::string& paths, const std::string& rates) {
    return offloaded(false, false, false, "nvme") + "[tier.nvme]\npaths = [" + paths + "]\n" + rates;
  }

  // Returns costs by which all but drives takes next to no time.
  static CostTable nothing_but_drives(const Assembly& assembly) {
    constexpr double quick = 1e18;
    DeviceRates rates;
    rates.device = assembly.device_info().name.view();
    rates.flops_per_second = {{DType::f32, quick}, {DType::f64, quick}, {DType::bf16, quick}};
    rates.bytes_per_second = quick;
    rates.host_bytes_per_second = rates.host_memory_bytes_per_second = quick;
    rates.drive_bytes_per_second = 2e9;
    rates.source = "made up";
    CostTable table;
    table.rates = {rates};
    return table;
  }

  const TempFolder one, other;
};

bool says(const Prediction& prediction, const std::string& words) {
  return std::any_of(prediction.notes.begin(), prediction.notes.end(),
                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST_F(DriveRatesOfARecipe, SetTheTimeOfAStep) {
  const double slow = seconds(on_one("read_rate = [1.0]\nwrite_rate = [0.5]\n")),
               quick = seconds(on_one("read_rate = [4.0]\nwrite_rate = [2.0]\n"));
  EXPECT_GT(quick, 0);
  EXPECT_NEAR(slow / quick, 4, 1e-6);
}

TEST_F(DriveRatesOfARecipe, AddUpOverDrives) {
  const double alone = seconds(on_one("read_rate = [3.0]\nwrite_rate = [2.0]\n"));
  EXPECT_NEAR(alone / seconds(on_two("read_rate = [3.0]\nwrite_rate = [2.0]\n")), 2, 1e-6);
  EXPECT_NEAR(alone / seconds(on_two("read_rate = [3.0, 3.0]\nwrite_rate = [2.0, 2.0]\n")), 2, 1e-6);
}

// Each has as many stripes, and a transfer ends with the last of them.
TEST_F(DriveRatesOfARecipe, AreThoseOfTheSlowestForEachStripe) {
  const double alone = seconds(on_one("read_rate = [3.0]\nwrite_rate = [2.0]\n"));
  EXPECT_NEAR(alone / seconds(on_two("read_rate = [3.0, 9.0]\nwrite_rate = [8.0, 2.0]\n")), 2, 1e-6);
  EXPECT_NEAR(alone / seconds(on_two("read_rate = [1.5, 9.0]\nwrite_rate = [8.0, 1.0]\n")), 1, 1e-6);
}

TEST_F(DriveRatesOfARecipe, AreAssumedWithoutThem) {
  const Prediction assumed = predicted(on_two(""));
  EXPECT_TRUE(says(assumed, "drives of assumed 2.0 GB/s"));
  EXPECT_FALSE(says(assumed, "as the recipe says"));
  const Prediction stated = predicted(on_two("read_rate = [3.0]\nwrite_rate = [2.0]\n"));
  EXPECT_TRUE(says(stated, "that read 6.0 GB/s and write 4.0 GB/s together, as the recipe says"));
  EXPECT_FALSE(says(stated, "assumed"));
}

TEST_F(DriveRatesOfARecipe, SetTheTimeThatASaveReads) {
  const double two = pause_of_save(on_one("read_rate = [2.0]\nwrite_rate = [1.0]\n")),
               four = pause_of_save(on_one("read_rate = [4.0]\nwrite_rate = [1.0]\n")),
               eight = pause_of_save(on_two("read_rate = [4.0]\nwrite_rate = [1.0]\n"));
  EXPECT_GT(four, eight);
  EXPECT_NEAR((two - four) / (four - eight), 2, 1e-3);
  // Without them it reads no quicker than the disk of run.out writes: 1 GiB/s.
  EXPECT_GT(pause_of_save(on_one("")), two);
}

TEST_F(DriveRatesOfARecipe, AreOneForEachFolderOrOneForAll) {
  EXPECT_EQ(refusal(on_two("read_rate = [3.0, 2.0]\nwrite_rate = [2.0]\n")), "");
  EXPECT_NE(
      refusal(on_two("read_rate = [3.0, 2.0, 1.0]\nwrite_rate = [2.0]\n"))
          .find("cannot assign 3 rates of [tier.nvme] read_rate to 2 folders; give one for each folder of "
                "paths, in their order, or one for all"),
      std::string::npos);
  EXPECT_NE(refusal(on_one("read_rate = [3.0]\nwrite_rate = [2.0, 1.0]\n"))
                .find("cannot assign 2 rates of [tier.nvme] write_rate to 1 folder;"),
            std::string::npos);
  EXPECT_NE(refusal(on_one("read_rate = [3.0]\n")).find("set both, or leave both out"), std::string::npos);
}

}  // namespace
}  // namespace prun::test::drive_rates_test
