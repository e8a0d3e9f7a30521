// Gradients that lie elsewhere, with several microbatches that go through all layers one after the other:
// they add up on the device, or leave it behind each microbatch and come back for the next. The bits are
// those of training without offload either way.
#include <gtest/gtest.h>

#include "estimate/moved_bytes.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun::test::offload_sums_test {
namespace {

constexpr std::size_t ways = 3;  // all add up on the device; those of layers leave; all do

const std::string gradients = offloaded(false, true), everything = offloaded(true, true, true);

std::int64_t device_bytes(const Assembly& assembly) { return assembly.plan().layout.ranges.front().bytes(); }

// Returns the sentence that says where gradients add up.
std::string said_of(const Assembly& assembly) {
  for (const std::string& said : assembly.program().requests().said_to_fit)
    if (said.starts_with("gradients: ")) return said;
  return "";
}

std::size_t way_of(const Assembly& assembly) {
  const std::string said = said_of(assembly);
  return said.find("on the device") == std::string::npos ? 2
         : said.find("layers") == std::string::npos      ? 0
                                                         : 1;
}

// Returns settings by which the planner has no room for the ways before this one.
std::vector<std::string> sets_for(std::size_t way, std::vector<std::string> sets, const std::string& more) {
  for (;;) {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
    if (way_of(assembly) >= way) return sets;
    sets.push_back("device.memory=" + std::to_string(device_bytes(assembly) - 1) + "B");
  }
}

struct Case {
  const char* name;
  std::string text;
  std::vector<std::string> sets;
  std::string offload = gradients;

  friend std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }
};

std::string zero(const char* stage) {
  return data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = " + stage + "\n";
}

std::vector<Case> layouts_of_sums() {
  return {{"one", "", {}},
          {"untied", "", {"model.tied=false"}},
          {"bf16", "", {"precision.compute=bf16", "precision.gradient=bf16", "model.tied=false"}},
          {"fp64", "", {"precision.compute=fp64", "precision.state=fp64"}},
          {"free", "", {"optimizer.clip=0"}},
          {"data", data_parallel(2), {}},
          {"data_untied", data_parallel(2), {"model.tied=false", "precision.compute=bf16"}},
          {"zero1", zero("1"), {}},
          {"zero1_free", zero("1"), {"model.tied=false", "optimizer.clip=0"}},
          {"zero3_step", zero("3\nreduce = 'step'"), {"precision.compute=bf16"}},
          {"everything", "", {"model.tied=false", "eval.every=2", "data.validation=0.05"}, everything},
          {"everything_in_parts", zero("3\nreduce = 'step'"), {}, everything},
          {"drives", "", {}, drives_alone("/tmp")},
          {"drives_in_parts", zero("1"), {}, offloaded_to_drives("/tmp", false, true, false, "nvme")},
          {"shares", "", {"model.tied=false"}, offloaded() + "gradients = 'device:40, host:60'\n"},
          {"tiles", "", {}, gradients + by_tensor},
          {"recompute", "[[strategy]]\nplugin = 'recompute'\n", {}, everything},
          {"ramp", "", {"batch.ramp.sizes=[1]", "batch.ramp.until=[1]"}}};
}

// Gradients of these stay on the device until the last microbatch, or the recipe is refused.
std::vector<Case> layouts_that_stay() {
  const std::string pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n";
  return {{"zero2", zero("2"), {}},
          {"zero3", zero("3"), {"model.tied=false"}, everything},
          {"pipeline", pipeline + "schedule = '1f1b'\n", {}},
          {"side_by_side", "", {"batch.interleave=2"}}};
}

using Sums = std::tuple<Case, int, std::size_t, Target>;
class OffloadedSums : public testing::TestWithParam<Sums> {};

constexpr int steps = 4;

std::vector<std::string> sets_of(const Case& layout, int microbatches, const Target& target) {
  const bool data = layout.text.find("plugin = 'data'") != std::string::npos ||
                    layout.text.find("plugin = \"data\"") != std::string::npos;
  return with(with(target.sets, layout.sets),
              {"model.layers=6", "batch.micro=1", "run.bucket_bytes=0B",
               "batch.global=" + std::to_string(microbatches * (data ? 2 : 1))});
}

TEST_P(OffloadedSums, StepsHaveTheBitsOfThoseWithout) {
  const auto& [layout, microbatches, way, target] = GetParam();
  std::vector<std::string> sets = sets_of(layout, microbatches, target);
  const std::vector<std::vector<double>> expected = run_ranks(tiny_recipe(sets, layout.text), steps);
  const std::string more = layout.text + layout.offload;
  sets = sets_for(way, sets, more);
  EXPECT_EQ(way_of(Assembly(tiny_recipe(sets, more), plugins())), way);
  EXPECT_EQ(run_ranks(tiny_recipe(sets, more), steps), expected);
}

std::string name_of(const testing::TestParamInfo<Sums>& tested) {
  const auto& [layout, microbatches, way, target] = tested.param;
  return std::string(layout.name) + "_" + std::to_string(microbatches) + "_" + std::to_string(way) + "_" +
         target.name;
}

const auto all_ways = testing::Range<std::size_t>(0, ways);

INSTANTIATE_TEST_SUITE_P(Layouts, OffloadedSums,
                         testing::Combine(testing::ValuesIn(layouts_of_sums()), testing::Values(3), all_ways,
                                          testing::Values(on_async())),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Microbatches, OffloadedSums,
                         testing::Combine(testing::Values(layouts_of_sums()[0], layouts_of_sums()[6],
                                                          layouts_of_sums()[7]),
                                          testing::Values(2, 4), all_ways, testing::Values(on_async())),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Staying, OffloadedSums,
                         testing::Combine(testing::ValuesIn(layouts_that_stay()), testing::Values(2, 4),
                                          testing::Values<std::size_t>(0), testing::Values(on_async())),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Cpu, OffloadedSums,
    testing::Combine(testing::Values(layouts_of_sums()[1], layouts_of_sums()[5], layouts_of_sums()[7]),
                     testing::Values(3), testing::Values<std::size_t>(0), testing::Values(on_cpu())),
    name_of);

// ---------------------------------------------------------------- devices that rewrite the program

// Returns the plan of a way whether the ways before it fit or not: memory of the device `cpu` is the host's.
Assembly planned_on_cpu(const Case& layout, std::size_t way) {
  const std::vector<std::string> sets = sets_of(layout, 3, on_cpu());
  PlanMaker maker(std::make_shared<PlannedRecipe>(tiny_recipe(sets, layout.text + layout.offload), plugins(),
                                                  0, Purpose::training));
  std::optional<Assembly> made;
  maker.make({{}, {0, way}}, {.far_ahead = true}, made);
  maker.prove(*made);
  return std::move(*made);
}

TEST(OffloadSums, ADeviceThatFusesOpsFindsSummandsOfRanksWhereTheyAre) {
  for (const std::size_t layout : {5, 6, 7, 9})
    for (std::size_t way = 0; way < ways; ++way) {
      SCOPED_TRACE(layouts_of_sums()[layout].name);
      EXPECT_EQ(way_of(planned_on_cpu(layouts_of_sums()[layout], way)), way);
    }
}

TEST(OffloadSums, ADeviceThatFusesOpsHasTheBitsOfTrainingWithout) {
  const Case untied = layouts_of_sums()[1];
  const std::vector<std::vector<double>> expected =
      run_ranks(tiny_recipe(sets_of(untied, 3, on_cpu())), steps);
  for (std::size_t way = 0; way < ways; ++way) {
    const Assembly assembly = planned_on_cpu(untied, way);
    Trainer trainer(assembly, plugins());
    std::vector<double> numbers = train_steps(trainer, steps);
    const std::vector<double> parameters = parameters_of(trainer);
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
    EXPECT_EQ(numbers, expected.front()) << way;
  }
}

// ---------------------------------------------------------------- what it costs

const std::vector<std::string> three_microbatches = {
    "device.plugin=cpu-async", "model.tied=false", "batch.micro=1", "batch.global=3", "run.bucket_bytes=0B"};

std::int64_t bytes_in(const Assembly& assembly, Region region) {
  return assembly.plan().layout.ranges.front().memory.bytes[static_cast<std::size_t>(region)];
}

// Returns the plan of the recipe with that many layers whose gradients add up that way.
Assembly planned(std::size_t way, int layers) {
  const std::vector<std::string> sets = with(three_microbatches, {"model.layers=" + std::to_string(layers)});
  return {tiny_recipe(sets_for(way, sets, gradients), gradients), plugins()};
}

// Between the three microbatches, all numbers go twice and come twice; what leaves in the end leaves once.
TEST(OffloadSums, WhatLeavesBetweenMicrobatchesIsMovedEachTime) {
  const auto moved = [](std::size_t way) {
    const Assembly assembly = planned(way, 6);
    return moved_bytes(assembly.program(), assembly.plan());
  };
  const MovedBytes stays = moved(0), layers = moved(1), all = moved(2);
  const std::int64_t twice = 2 * 4 * planned(0, 6).parameters();
  EXPECT_EQ(all.to_host - stays.to_host, twice);
  EXPECT_EQ(all.to_device - stays.to_device, twice);
  EXPECT_LT(layers.to_host - stays.to_host, twice);
  EXPECT_GT(layers.to_host - stays.to_host, twice / 2);
  EXPECT_EQ(layers.to_host - stays.to_host, layers.to_device - stays.to_device);
}

// Three layers' at most: one leaves, one is added to, one comes.
TEST(OffloadSums, TheDeviceHasRoomForTheSumsOfAllLayersOrOfThree) {
  EXPECT_GE(bytes_in(planned(0, 6), Region::gradient), 4 * planned(0, 6).parameters());
  EXPECT_EQ(bytes_in(planned(1, 6), Region::gradient), bytes_in(planned(1, 12), Region::gradient));
  EXPECT_GT(bytes_in(planned(1, 6), Region::gradient), 0);
  EXPECT_EQ(bytes_in(planned(2, 6), Region::gradient), 0);
  EXPECT_EQ(bytes_in(planned(2, 6), Region::unreduced), bytes_in(planned(2, 12), Region::unreduced));
}

TEST(OffloadSums, ThePlanSaysWhereTheyAddUp) {
  EXPECT_EQ(said_of(planned(0, 6)),
            "gradients: microbatches add to them on the device, and they leave it for their updates");
  EXPECT_EQ(said_of(planned(2, 6)),
            "gradients: they leave the device behind each microbatch and come back for the next");
  EXPECT_EQ(
      said_of({tiny_recipe(with(three_microbatches, {"batch.order=breadth_first"}), gradients), plugins()}),
      "");
  EXPECT_EQ(said_of({tiny_recipe(with(three_microbatches, {"batch.global=1"}), gradients), plugins()}), "");
}

// ---------------------------------------------------------------- what is refused

std::string refusal_of(const std::vector<std::string>& sets, const std::string& more) {
  try {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> without_room(const std::vector<std::string>& sets, const std::string& more) {
  const Assembly roomy(tiny_recipe(sets, more), plugins());
  return with(sets, {"device.memory=" + std::to_string(device_bytes(roomy) - 1) + "B"});
}

TEST(OffloadSums, WhatCannotLeaveBetweenMicrobatchesIsRefusedWhereItDoesNotFit) {
  const std::vector<std::string> deep = {"device.plugin=cpu-async", "model.layers=6", "batch.micro=1",
                                         "batch.global=4"};
  const std::string summed = zero("2") + gradients;
  EXPECT_NE(refusal_of(without_room(deep, summed), summed).find("once a step: the ranks of axis"),
            std::string::npos);
  const std::vector<std::string> lanes = with(deep, {"batch.interleave=2"});
  EXPECT_NE(refusal_of(without_room(lanes, gradients), gradients).find("leave batch.interleave out"),
            std::string::npos);
}

TEST(OffloadSums, GradientsThatMicrobatchesAddToAreNotDroppedBehindTheirUpdates) {
  const std::vector<std::string> dropped =
      with(three_microbatches, {"run.keep_gradients=false", "optimizer.clip=0", "run.on_nonfinite=stop"});
  EXPECT_NE(refusal_of(dropped, gradients)
                .find("set batch.order = \"breadth_first\", or leave "
                      "run.keep_gradients out"),
            std::string::npos);
  EXPECT_EQ(refusal_of(with(dropped, {"batch.order=breadth_first"}), gradients), "");
}

}  // namespace
}  // namespace prun::test::offload_sums_test
