// What a recipe leaves open by `auto` and predicted times settle: where updates run, in which order
// microbatches pass the layers.
#include "search/settled_recipe.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "estimate/costs_file.hpp"
#include "estimate/forecast.hpp"
#include "estimate/number_text.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::quickest_test {
namespace {

namespace fs = std::filesystem;

// Seconds of a kernel, by the op and whether the host's cores run it.
using Cost = double (*)(std::string_view op, bool on_host);

// A cost table for all ways to settle a recipe.
fs::path costs_of(const Recipe& recipe, Cost cost) {
  CostTable table;
  table.machine = this_machine();
  for (const RecipeVariant& way : variants_of(recipe, plugins())) {
    const Assembly assembly(way.recipe, plugins());
    for (const PlannedFunction& function : assembly.plan().functions)
      for (const PlannedStep& step : function.steps) {
        if (!step.kernel) continue;
        const Op& op = assembly.program().op(step.op);
        const DeviceInfo& device = assembly.device_infos()[static_cast<std::size_t>(step.device)];
        table.exact[{std::string(device.name.view()),
                     shape_key(*op.def, assembly.program().local_shape(op))}] =
            cost(op.kind(), device.host_memory);
      }
  }
  const fs::path file = temporary_folder() / "costs.json";
  std::ofstream(file) << to_json(table);
  return file;
}

double seconds_of(const Recipe& recipe, const fs::path& costs) {
  const Assembly assembly(recipe, plugins());
  return forecast(assembly, plugins(), costs).prediction.value().simulation.step_seconds;
}

double slow_host(std::string_view, bool on_host) { return on_host ? 1e-3 : 1e-6; }
double slow_device(std::string_view, bool on_host) { return on_host ? 1e-6 : 1e-3; }
double slow_copies(std::string_view op, bool) { return op == "copy" ? 1e-3 : 1e-6; }
double all_alike(std::string_view, bool) { return 1e-3 / 3; }

const std::string update_left_open = offloaded() + "update = 'auto'\n";

TEST(Quickest, UpdatesRunWhereAStepIsPredictedToTakeLessTime) {
  const Recipe recipe = tiny_recipe({"device.plugin=cpu-async"}, update_left_open);
  for (const Cost cost : {slow_host, slow_device}) {
    const fs::path costs = costs_of(recipe, cost);
    const double host = seconds_of(recipe.with("strategy.0.update", "host"), costs),
                 device = seconds_of(recipe.with("strategy.0.update", "device"), costs);
    EXPECT_EQ(cost == slow_host, device < host);
    const Quickest quickest = choose_quickest(recipe, plugins(), costs);
    EXPECT_EQ(quickest.recipe.text("strategy.0.update"), device < host ? "device" : "host");
    EXPECT_EQ(quickest.said, device < host
                                 ? "strategy.0.update=device (" + time_text(device) +
                                       " a step predicted; strategy.0.update=host: " + time_text(host) +
                                       " a step predicted)"
                                 : "strategy.0.update=host (" + time_text(host) +
                                       " a step predicted; strategy.0.update=device: " + time_text(device) +
                                       " a step predicted)");
  }
}

// Parameters are fetched once a step, or for each microbatch.
TEST(Quickest, MicrobatchesPassInTheOrderThatIsPredictedToTakeLessTime) {
  const std::string fetched = offloaded(true, false);
  const Recipe recipe =
      tiny_recipe({"device.plugin=cpu-async", "batch.order=auto", "batch.micro=1"}, fetched);
  EXPECT_EQ(choose_quickest(recipe, plugins(), costs_of(recipe, slow_copies)).recipe.text("batch.order"),
            "breadth_first");
  // Where neither gains anything it is the usual one.
  const Recipe alike =
      tiny_recipe({"device.plugin=cpu-async", "batch.order=auto", "batch.global=2", "batch.micro=2"});
  EXPECT_EQ(choose_quickest(alike, plugins(), costs_of(alike, all_alike)).recipe.text("batch.order"),
            "depth_first");
}

TEST(Quickest, AllWaysOfTwoSettingsAreCompared) {
  const Recipe recipe = tiny_recipe({"device.plugin=cpu-async", "batch.order=auto"}, update_left_open);
  std::vector<std::string> said;
  for (const RecipeVariant& way : variants_of(recipe, plugins())) said.push_back(way.said());
  EXPECT_EQ(said, (std::vector<std::string>{"batch.order=depth_first and strategy.0.update=host",
                                            "batch.order=depth_first and strategy.0.update=device",
                                            "batch.order=breadth_first and strategy.0.update=host",
                                            "batch.order=breadth_first and strategy.0.update=device"}));
  EXPECT_EQ(choose_quickest(recipe, plugins(), costs_of(recipe, slow_host)).recipe.text("strategy.0.update"),
            "device");
}

TEST(Quickest, WhatIsSettledIsLeftAlone) {
  const Quickest quickest = choose_quickest(tiny_recipe({}, offloaded()), plugins());
  EXPECT_EQ(quickest.said, "");
  EXPECT_EQ(quickest.recipe.text("strategy.0.update"), "host");
}

// Gradients on the host are updated there: nothing else is left, whatever the times are.
TEST(Quickest, WhatIsRefusedIsPassedOver) {
  const Recipe recipe = tiny_recipe({"device.plugin=cpu-async", "batch.micro=1", "batch.global=1"},
                                    offloaded(false, true) + "update = 'auto'\n");
  const Recipe host = recipe.with("strategy.0.update", "host");
  const Quickest quickest = choose_quickest(recipe, plugins(), costs_of(host, slow_host));
  EXPECT_EQ(quickest.recipe.text("strategy.0.update"), "host");
  EXPECT_NE(quickest.said.find("; strategy.0.update=device: refused: "), std::string::npos) << quickest.said;
  EXPECT_NE(quickest.said.find("or leave update out"), std::string::npos) << quickest.said;
}

// A table that was named and knows one of the ways says nothing of the other.
TEST(Quickest, ATableThatWasNamedMustKnowEachWay) {
  const Recipe recipe = tiny_recipe({"device.plugin=cpu-async"}, update_left_open);
  const fs::path costs = costs_of(recipe.with("strategy.0.update", "device"), slow_host);
  EXPECT_THROW(choose_quickest(recipe, plugins(), costs), Error);
}

// ---------------------------------------------------------------- runs that go on

// A run of two steps with these settings, saved.
std::string saved_with(const std::string& name, const std::vector<std::string>& sets,
                       const std::string& more) {
  const std::string folder = (temporary_folder() / name).string();
  const Assembly assembly(tiny_recipe(with(sets, {"run.out=" + folder}), more), plugins());
  Trainer trainer(assembly, plugins());
  train_steps(trainer, 2);
  trainer.save();
  return "run.resume=" + folder;
}

TEST(Quickest, ARunGoesOnInTheWayItWasSettledBefore) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async"};
  const std::string resume =
      saved_with("settled", with(sets, {"batch.order=breadth_first"}), offloaded() + "update = 'device'\n");
  const Recipe recipe = tiny_recipe(with(sets, {"batch.order=auto", resume}), update_left_open);
  const RecipeVariant before = settled_as_before(recipe, plugins());
  EXPECT_EQ(before.said(), "batch.order=breadth_first and strategy.0.update=device");
  EXPECT_EQ(
      choose_quickest(before.recipe, plugins(), costs_of(recipe, slow_device)).recipe.text("batch.order"),
      "breadth_first");
  // Of what the run did not have nothing is known.
  const std::string without = saved_with("without", sets, "");
  const RecipeVariant some =
      settled_as_before(tiny_recipe(with(sets, {"batch.order=auto", without}), update_left_open), plugins());
  EXPECT_EQ(some.said(), "batch.order=depth_first");
  EXPECT_EQ(settled_as_before(recipe.with("run.resume", ""), plugins()).said(), "");
  // In a pipeline no layer takes all microbatches before the next one.
  const std::string pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";
  const Recipe cut = tiny_recipe({"batch.order=auto", "batch.micro=1", resume}, pipeline);
  EXPECT_EQ(settled_as_before(cut, plugins()).said(), "");
  EXPECT_EQ(choose_quickest(cut, plugins()).recipe.text("batch.order"), "depth_first");
}

}  // namespace
}  // namespace prun::test::quickest_test
