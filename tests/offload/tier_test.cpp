// A third party's tier, which is what `prun plugins new tier` writes: named like any other, alone and beside
// others, and chosen in its turn.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/assemble/tiers.hpp"

namespace prun::test::tier_test {
namespace {

constexpr int steps = 5;

std::string shelf_in(const std::string& folder) { return "[tier.shelf]\nfolder = '" + folder + "'\n"; }

std::string offload(const std::string& options) { return "[[strategy]]\nplugin = 'offload'\n" + options; }

std::string all_on(const std::string& places) {
  std::string text;
  for (const char* what : {"optimizer", "gradients", "parameters", "activations"})
    text += std::string(what) + " = '" + places + "'\n";
  return offload(text);
}

const std::vector<std::string> ranks = {"comm.default=meet", "device.threads=1", "batch.micro=1",
                                        "batch.global=2"};

class Tier : public testing::Test {
 protected:
  std::string shelf() const { return shelf_in(folder.path()); }
  std::string both() const { return drive_in(folder.path()) + shelf(); }
  std::string refusal(const std::string& text) const {
    try {
      refuse_idle_tiers(Assembly(tiny_recipe({}, text), plugins()));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  void TearDown() override { EXPECT_TRUE(std::filesystem::is_empty(folder.path())); }

  const TempFolder folder;
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Tier, HasAnyPlaceAndShareOnSeveralRanks) {
  const auto run = [&](const std::string& more) {
    return run_ranks(tiny_recipe(ranks, data_parallel(2) + more), steps);
  };
  const auto expected = run("");
  EXPECT_EQ(run(offload("optimizer = 'shelf'\n") + shelf()), expected);
  EXPECT_EQ(run(all_on("shelf") + shelf()), expected);
  EXPECT_EQ(run(all_on("device:30, host:30, shelf:40") + shelf()), expected);
}

TEST_F(Tier, StandsBesideAnotherOne) {
  const auto run = [&](const std::string& more) {
    return run_ranks(tiny_recipe(ranks, data_parallel(2) + more), steps);
  };
  const auto expected = run("");
  EXPECT_EQ(run(all_on("nvme:50, shelf:50") + both()), expected);
  EXPECT_EQ(
      run(offload("optimizer = 'nvme'\nparameters = 'shelf'\nactivations = 'host:20, shelf:80'\n") + both()),
      expected);
}

TEST_F(Tier, IsComparedByTheRanks) {
  const std::vector<std::string> sets = with(ranks, {"run.check_replicas_every=1"});
  EXPECT_EQ(run_ranks(tiny_recipe(sets, data_parallel(2) + all_on("shelf") + shelf()), steps),
            run_ranks(tiny_recipe(sets, data_parallel(2)), steps));
}

TEST_F(Tier, NeedsNoTable) {
  const Assembly assembly(tiny_recipe({}, offload("optimizer = 'shelf'\n")), plugins());
  EXPECT_EQ(assembly.device_infos().back().kind.view(), "shelf");
}

// What neither device nor host has room for goes to the tier of the first table.
TEST_F(Tier, IsChosenInTheOrderOfTheRecipe) {
  constexpr double gib = 1 << 30;
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16",
                                         "model.layers=6",          "model.hidden=256",
                                         "batch.global=2",          "batch.micro=2"};
  const Assembly far(tiny_recipe(sets, all_on("shelf") + by_tensor + shelf()), plugins());
  const std::vector<std::string> little = with(
      sets, {format("device.memory=%lldB", static_cast<long long>(far.bytes_in_memory_of(0, far.plan()))),
             format("tier.cpu.plan_gib=%.17g",
                    static_cast<double>(far.bytes_in_memory_of(1, far.plan()) + far.process_bytes()) / gib)});
  const auto said = [&](const std::string& tables) {
    const Assembly chosen(tiny_recipe(little, automatic_offload + tables), plugins());
    refuse_idle_tiers(chosen);
    return chosen.program().requests().said_to_fit.at(0);
  };
  const std::string all = "offload: optimizer state, gradients, activations and parameters lie on ",
                    tiled = ", updated tensor by tensor";
  EXPECT_EQ(said(shelf() + drive_in(folder.path())), all + "shelf" + tiled);
  EXPECT_EQ(said(drive_in(folder.path()) + shelf()), all + "nvme" + tiled);
}

TEST_F(Tier, ThatNobodyUsesIsRefused) {
  EXPECT_TRUE(holds(refusal(shelf()), "nothing lies on the tier of [tier.shelf]"));
  EXPECT_TRUE(holds(refusal(shelf()), "--set tier={}"));
  EXPECT_TRUE(holds(refusal(both() + offload("optimizer = 'nvme'\n")), "[tier.shelf]"));
  EXPECT_TRUE(holds(refusal("[tier.cpu]\nplan_gib = 1.0\n"), "[device] is the same plugin"));
  EXPECT_EQ(refusal(both() + offload("optimizer = 'nvme:50, shelf:50'\n")), "");
  EXPECT_EQ(refusal(both() + automatic_offload), "");
  EXPECT_EQ(refusal(offload("optimizer = 'host'\n")), "");
}

TEST_F(Tier, IsTakenOutByOneSetting) {
  refuse_idle_tiers(Assembly(tiny_recipe({"tier={}"}, shelf()), plugins()));
  refuse_idle_tiers(Assembly(tiny_recipe({"tier={}"}), plugins()));
  const Recipe again = tiny_recipe({"tier={}", "tier.shelf.folder=/nowhere"}, shelf());
  EXPECT_EQ(again.text("tier.shelf.folder"), "/nowhere");
}

TEST_F(Tier, ThatIsNoneIsRefusedByName) {
  const std::string none = refusal(offload("optimizer = 'shelv'\n"));
  EXPECT_TRUE(holds(none, "there is no tier 'shelv'; did you mean 'shelf'?")) << none;
  EXPECT_TRUE(holds(refusal(offload("optimizer = 'tape'\n")), "named by its device plugin; there are nvme"));
  EXPECT_TRUE(
      holds(refusal(offload("optimizer = 'cpu'\n")), "optimizer is \"cpu\", which is called \"host\" here"));
  const std::string computes = refusal(offload("optimizer = 'cpu-async'\n"));
  EXPECT_TRUE(holds(computes, "device plugin 'cpu-async' computes, and a tier only keeps bytes")) << computes;
  EXPECT_TRUE(holds(refusal(offload("optimizer = 'Shelf'\n")), "the name of a tier's plugin"));
}

}  // namespace
}  // namespace prun::test::tier_test
