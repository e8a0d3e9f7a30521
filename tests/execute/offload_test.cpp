// Strategy offload: the bits are those of training without it, whatever the layout, the formats and the
// optimizer; its memory is what was asked for, and the plan says what moves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include "base/json.hpp"
#include "base/text.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/forecast.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/simulate.hpp"
#include "estimate/table_cost_model.hpp"
#include "inspect/report.hpp"
#include "inspect/report_sections.hpp"
#include "program/step.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::offload_test {
namespace {

constexpr int steps = 20;

class Offloaded : public testing::TestWithParam<std::tuple<Layout, Target>> {};

TEST_P(Offloaded, TwentyStepsHaveTheBitsOfThoseWithout) {
  const auto& [layout, target] = GetParam();
  const auto run = [&](const std::string& more) {
    return run_ranks(tiny_recipe(with(layout.sets, target.sets), layout.text + more), steps);
  };
  EXPECT_EQ(run(offloaded()), run(""));
}

// What lies in the host's memory beside the optimizer. Gradients leave once a step: it has one microbatch, or
// all of them pass a layer before the next.
struct StatePlaces {
  const char* name;
  std::string text;
  bool parameters = false, gradients = false, vertical = false;
  bool shared = false;  // these two, in per cent: ranks that keep them in parts have no whole ones

  friend std::ostream& operator<<(std::ostream& out, const StatePlaces& lies) { return out << lies.name; }
};

const std::string on_drives = drive_in("/tmp");

std::vector<StatePlaces> elsewhere() {
  return {
      {"parameters", offloaded(true, false), true, false, false},
      {"gradients", offloaded(false, true), false, true, false},
      {"both", offloaded(true, true), true, true, false},
      {"vertical", offloaded(true, true), true, true, true},
      {"activations", offloaded(false, false, true), false, false, false},
      {"all", offloaded(true, true, true), true, true, true},
      {"parameters_on_drives", offloaded_to_drives("/tmp", true, false, false, "nvme"), true, false, false},
      {"all_on_drives", drives_alone("/tmp"), true, true, true},
      {"updated_here", updated_here, false, false, false},
      {"shares", offloaded(false, false, false, "device:30, host:40, nvme:30") + on_drives, false, false,
       false},
      {"shares_here", offloaded(false, false, false, "device:40, host:60") + "update = 'device'\n", false,
       false, false},
      {"shared_parameters",
       offloaded(false, true) + "parameters = 'device:40, host:30, nvme:30'\n" + on_drives, true, true, true,
       true},
      {"tiles", offloaded(true, true) + by_tensor, true, true, true},
      {"tiles_here", updated_here + by_tensor, false, false, false},
      {"tiles_on_drives", offloaded(true, true, true, "nvme", "nvme") + by_tensor + on_drives, true, true,
       true},
      {"shared_gradients", offloaded() + "gradients = 'device:40, host:30, nvme:30'\n" + on_drives, false,
       true, false, true},
      {"shared_activations", offloaded() + "activations = 'device:30, host:40, nvme:30'\n" + on_drives, false,
       false, false},
      {"all_shared", shared_by_all("/tmp"), true, true, true, true}};
}

bool has(const Layout& layout, const char* text) { return layout.text.find(text) != std::string::npos; }

// Ranks that keep optimizer state alone in parts have all parameters each; stages of a pipeline hand one
// microbatch on after the other; what is summed over ranks after each microbatch is not complete once a step.
bool is_refused(const Layout& layout, const StatePlaces& lies) {
  const bool zero3 = has(layout, "stage = 3");
  if (has(layout, "'zero'") && (lies.shared || (lies.parameters && !zero3))) return true;
  return lies.vertical && (has(layout, "'pipeline'") || (zero3 && !has(layout, "reduce = 'step'")));
}

std::vector<std::string> sets_of(const Layout& layout, const StatePlaces& lies) {
  std::vector<std::string> sets = layout.sets;
  if (lies.vertical)
    sets = with(sets, {"batch.order=breadth_first"});
  else if (lies.gradients)
    sets.emplace_back(has(layout, "'data'") ? "batch.global=2" : "batch.global=1");
  return sets;
}

std::vector<Layout> layouts_and_one_more() {
  std::vector<Layout> all = layouts();
  all.push_back({"zero3_step", data_and_zero, {"model.tied=false"}});
  all.back().text.replace(all.back().text.find("stage = 2"), 9, "stage = 3\nreduce = 'step'");
  return all;
}

using Elsewhere = std::tuple<Layout, StatePlaces, Target>;
class OffloadedElsewhere : public testing::TestWithParam<Elsewhere> {
 protected:
  using Numbers = std::vector<std::vector<double>>;  // by rank

  static Numbers run(const std::string& more, const std::vector<std::string>& sets = {}) {
    return run_ranks(recipe_of(more, sets), few_steps());
  }
  // Cases whose state lies in other places are compared with one training without it: tests/CMakeLists.txt
  // runs many of them in one process.
  static const Numbers& run_without(const std::vector<std::string>& sets = {}) {
    const Recipe recipe = recipe_of("", sets);
    const auto [known, fresh] = known_.try_emplace(recipe.resolved_toml());
    if (fresh) known->second = run_ranks(recipe, few_steps());
    return known->second;
  }
  static void TearDownTestSuite() { known_.clear(); }

 private:
  // Buffers and sides of steps have gone round several times by then. Offloaded trains for longer.
  static int few_steps() { return std::getenv("PRUN_LONG") ? steps : 8; }
  static Recipe recipe_of(const std::string& more, const std::vector<std::string>& sets) {
    const auto& [layout, lies, target] = GetParam();
    return tiny_recipe(with(with(sets_of(layout, lies), target.sets), sets), layout.text + more);
  }

  static inline std::map<std::string, Numbers> known_;  // by recipe
};

TEST_P(OffloadedElsewhere, StepsHaveTheBitsOfThoseWithout) {
  const auto& [layout, lies, target] = GetParam();
  if (is_refused(layout, lies))
    EXPECT_THROW(run(lies.text), Error);
  else
    EXPECT_EQ(run(lies.text), run_without());
}

std::string name_of_three(const testing::TestParamInfo<Elsewhere>& tested) {
  const auto& [layout, lies, target] = tested.param;
  return std::string(layout.name) + "_" + lies.name + "_" + target.name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, OffloadedElsewhere,
                         testing::Combine(testing::ValuesIn(layouts_and_one_more()),
                                          testing::ValuesIn(elsewhere()), testing::ValuesIn(targets())),
                         name_of_three);

std::string name_of_pair(const testing::TestParamInfo<std::tuple<Layout, Target>>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Offloaded,
                         testing::Combine(testing::ValuesIn(layouts()), testing::ValuesIn(targets())),
                         name_of_pair);

INSTANTIATE_TEST_SUITE_P(Formats, Offloaded,
                         testing::Combine(testing::ValuesIn(optimizer_formats()),
                                          testing::ValuesIn(targets())),
                         name_of_pair);

// Where ranks keep all in parts.
std::vector<Layout> formats_in_parts() {
  std::vector<Layout> all = optimizer_formats();
  for (Layout& layout : all)
    if (const std::size_t at = layout.text.find("stage = 2"); at != std::string::npos)
      layout.text.replace(at, 9, "stage = 3");
  return all;
}

// Nothing is clipped: a layer's update does not wait for the norm.
TEST_P(OffloadedElsewhere, WithoutClippingTooTheBitsAreThose) {
  const auto& [layout, lies, target] = GetParam();
  if (!lies.gradients || is_refused(layout, lies)) return;
  EXPECT_EQ(run(lies.text, {"optimizer.clip=0"}), run_without({"optimizer.clip=0"}));
}

INSTANTIATE_TEST_SUITE_P(Formats, OffloadedElsewhere,
                         testing::Combine(testing::ValuesIn(formats_in_parts()),
                                          testing::Values(elsewhere()[2], elsewhere()[8], elsewhere()[10]),
                                          testing::Values(targets().back())),
                         name_of_three);

// Of an optimizer of several ops: what one makes for the other is no longer than what it is made of.
TEST(Offload, WhatUpdatesMakeInBetweenIsInPartsToo) {
  for (const std::string& more : {std::string(), offloaded()}) {
    const Assembly assembly(tiny_recipe({"optimizer.plugin=halving", "batch.micro=2"}, data_and_zero + more),
                            plugins());
    int scaled = 0;
    for (const PlannedFunction& function : assembly.plan().functions)
      for (const PlannedStep& step : function.steps) {
        if (step.op == none || assembly.program().op(step.op).kind() != "scale") continue;
        EXPECT_EQ(step.operands.front().address.bytes, step.operands.back().address.bytes);
        ++scaled;
      }
    EXPECT_GT(scaled, 0);
  }
}

// What is not kept on the device is not there; the other way round it is no second device at all.
TEST(Offload, OnTheDeviceNothingChanges) {
  const Assembly plain(tiny_recipe(), plugins()),
      device(tiny_recipe({}, "[[strategy]]\nplugin = 'offload'\noptimizer = 'device'\n"), plugins());
  EXPECT_EQ(device.devices().size(), 1u);
  EXPECT_EQ(device.fingerprint(), plain.fingerprint());
}

// ---------------------------------------------------------------- steps that are not finite

const std::string spoilt =
    "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\n"
    "tensor = 'qkv.bias'\nlayer = 1\nsample = 9\n";

struct Course {
  std::vector<bool> kept;
  std::vector<std::string> non_finite;
  std::vector<double> parameters;

  friend bool operator==(const Course&, const Course&) = default;
};

// Of steps that are started ahead.
Course course_of(const Recipe& recipe) {
  const Assembly assembly(recipe, plugins());
  Trainer trainer(assembly, plugins());
  Course course;
  trainer.run(5, [&](const StepResult& result) {
    course.kept.push_back(result.kept);
    course.non_finite.push_back(result.non_finite);
  });
  course.parameters = parameters_of(trainer);
  return course;
}

// Skipped, or what the step behind it finds halted: no update, and the rate does not go on.
TEST(Offload, AStepThatIsNotFiniteChangesNothingThereEither) {
  for (const char* what : {"run.on_nonfinite=skip", "run.on_nonfinite=stop"}) {
    const std::vector<std::string> sets = {"precision.compute=bf16", "device.plugin=cpu-async", what};
    const Course expected = course_of(tiny_recipe(sets, spoilt));
    ASSERT_GE(expected.kept.size(), 3u) << what;
    EXPECT_FALSE(expected.kept[2]) << what;
    EXPECT_EQ(expected.non_finite[2], "block.1.qkv.bias") << what;
    EXPECT_EQ(course_of(tiny_recipe(sets, spoilt + offloaded())), expected) << what;
    EXPECT_EQ(course_of(tiny_recipe(sets, spoilt + offloaded(true, true))), expected) << what;
  }
}

// Updates that do not wait for the norm cannot be masked by it; the step behind is, and the run ends.
TEST(Offload, AStepThatIsNotFiniteEndsARunWhoseUpdatesDoNotWait) {
  const std::vector<std::string> sets = {"precision.compute=bf16", "device.plugin=cpu-async",
                                         "optimizer.clip=0"};
  const Assembly assembly(tiny_recipe(sets, spoilt + offloaded(true, true)), plugins());
  Trainer trainer(assembly, plugins());
  std::vector<StepResult> results;
  trainer.run(5, [&](const StepResult& result) { results.push_back(result); });
  ASSERT_GE(results.size(), 3u);
  EXPECT_TRUE(results[1].kept);
  EXPECT_FALSE(results[2].kept);
  EXPECT_EQ(results[2].non_finite, "block.1.qkv.bias");
}

// In whole tensors of each layer, some of which stay: the norm is the same sum.
TEST(Offload, TheNormOfGradientsInSeveralPlacesHasTheBitsOfThoseInOne) {
  const auto norms = [](const std::string& more, bool pipeline) {
    const std::string layout =
        pipeline ? "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\nschedule = '1f1b'\n"
                 : data_parallel(2);
    std::vector<std::vector<double>> of_rank(2);
    run_local_ranks(
        tiny_recipe({"device.plugin=cpu-async", "comm.default=meet-async", "model.layers=4",
                     pipeline ? "batch.global=1" : "batch.global=2", "batch.micro=1"},
                    layout + more),
        plugins().places(), [&](Trainer& trainer) {
          trainer.run(10, [&](const StepResult& result) {
            of_rank[static_cast<std::size_t>(trainer.assembly().rank())].push_back(result.grad_norm);
          });
        });
    return of_rank;
  };
  for (const bool pipeline : {false, true}) {
    const std::vector<std::vector<double>> expected = norms("", pipeline);
    EXPECT_EQ(expected[0].size(), 10u);
    for (const char* shares : {"device:60, host:40", "device:40, host:60", "host:50, nvme:50"})
      EXPECT_EQ(norms(offloaded() + "gradients = '" + shares + "'\n" + on_drives, pipeline), expected)
          << shares;
  }
}

TEST(Offload, UpdatesWaitForTheNormWhereItDecides) {
  const auto waits = [](const std::vector<std::string>& sets, const std::string& more) {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
    return !updates_before_norm(assembly.program());
  };
  EXPECT_FALSE(waits({"optimizer.clip=0"}, offloaded(false, true)));
  EXPECT_FALSE(waits({"optimizer.clip=0", "batch.order=breadth_first"},
                     offloaded() + "gradients = 'device:40, host:60'\n"));
  EXPECT_TRUE(waits({"optimizer.clip=1"}, offloaded(false, true)));
  EXPECT_TRUE(waits({"optimizer.clip=0", "run.on_nonfinite=skip"}, offloaded(false, true)));
  EXPECT_FALSE(waits({"optimizer.clip=0"}, offloaded(true, false)));
  EXPECT_TRUE(waits({"optimizer.clip=1"}, offloaded(true, false)));
  EXPECT_TRUE(waits({"optimizer.clip=0", "run.on_nonfinite=skip"}, offloaded(true, false)));
  EXPECT_TRUE(waits({"optimizer.clip=0", "batch.micro=1"}, data_and_zero + offloaded()));
  EXPECT_TRUE(waits({"optimizer.clip=0"}, updated_here));
  EXPECT_TRUE(waits({"optimizer.clip=0"}, ""));
}

// Every fourth is left for the next step's forward pass, which needs the first of them first.
TEST(Offload, UpdatesKeepUpWithBackward) {
  for (const bool everything : {false, true}) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cpu-async", "optimizer.clip=0", "model.layers=10", "batch.micro=1",
                     everything ? "batch.order=breadth_first" : "batch.order=depth_first"},
                    offloaded(everything, everything)),
        plugins());
    const Plan& plan = assembly.plan();
    std::vector<std::int32_t> order;
    for (const Call& call : plan.calls)
      if (const QueueInfo& queue = plan.queues[static_cast<std::size_t>(call.queue)];
          call.instance > 0 && queue.workers && queue.device != 0 &&
          plan.functions[static_cast<std::size_t>(call.function)].kind == FunctionKind::update)
        order.push_back(call.instance);
    EXPECT_EQ(order, (std::vector<std::int32_t>{12, 11, 10, 8, 7, 6, 4, 3, 2, 1, 5, 9})) << everything;
  }
}

TEST(Offload, UpdatesBesideBackwardChangeNoBit) {
  const auto results = [](const std::string& more) {
    std::vector<std::pair<double, double>> list;
    run_local_ranks(tiny_recipe({"device.plugin=cpu-async", "device.delay_us=50", "optimizer.clip=0",
                                 "model.layers=6", "batch.micro=1"},
                                more),
                    plugins().places(), [&](Trainer& trainer) {
                      trainer.run(10, [&](const StepResult& result) {
                        list.emplace_back(result.loss, result.grad_norm);
                      });
                    });
    return list;
  };
  const auto expected = results("");
  EXPECT_EQ(expected.size(), 10u);
  for (bool parameters : {false, true}) EXPECT_EQ(results(offloaded(parameters)), expected);
}

// ---------------------------------------------------------------- memory

// Three layers' at a time, however many there are.
TEST(Offload, WhatIsOnItsWayDoesNotGrowWithTheLayers) {
  const auto moving = [](const char* layers) {
    const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", layers}, offloaded()), plugins());
    return assembly.plan().layout.memory.bytes[static_cast<std::size_t>(Region::update)];
  };
  EXPECT_EQ(moving("model.layers=4"), moving("model.layers=12"));
  EXPECT_LT(moving("model.layers=1"), moving("model.layers=4"));
}

std::int64_t bytes_in(const Assembly& assembly, MemoryPlace place, Region region) {
  for (const prun::Layout::Range& range : assembly.plan().layout.ranges)
    if (range.place == place) return range.memory.bytes[static_cast<std::size_t>(region)];
  return 0;
}

// Two layers' at a time, those at work and those on their way, however many there are.
TEST(Offload, TheDeviceHasRoomForWhatIsUsedAlone) {
  constexpr MemoryPlace own{0, Space::device}, pinned{0, Space::pinned};
  const auto in_turn = [&](const char* layers) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "run.bucket_bytes=0B", layers},
                    offloaded(true, true)),
        plugins());
    EXPECT_EQ(bytes_in(assembly, own, Region::parameter), 0);
    EXPECT_EQ(bytes_in(assembly, own, Region::gradient), 0);
    EXPECT_EQ(bytes_in(assembly, own, Region::state), 0);
    EXPECT_GE(bytes_in(assembly, pinned, Region::parameter), 2 * assembly.parameters());
    EXPECT_GE(bytes_in(assembly, pinned, Region::gradient), 4 * assembly.parameters());
    return bytes_in(assembly, own, Region::gathered) + bytes_in(assembly, own, Region::unreduced) +
           bytes_in(assembly, own, Region::scratch) + bytes_in(assembly, own, Region::bucket);
  };
  EXPECT_EQ(in_turn("model.layers=4"), in_turn("model.layers=12"));
  EXPECT_LT(in_turn("model.layers=1"), in_turn("model.layers=4"));
}

TEST(Offload, OfStateThatIsUpdatedOnTheDeviceThreeLayersAreThere) {
  constexpr MemoryPlace own{0, Space::device}, pinned{0, Space::pinned};
  const auto in_turn = [&](const char* layers) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "run.bucket_bytes=0B", layers},
                    updated_here),
        plugins());
    EXPECT_EQ(bytes_in(assembly, own, Region::state), 0);
    EXPECT_GE(bytes_in(assembly, pinned, Region::state), 12 * assembly.parameters());
    return bytes_in(assembly, own, Region::update);
  };
  EXPECT_EQ(in_turn("model.layers=4"), in_turn("model.layers=12"));
  EXPECT_LT(in_turn("model.layers=1"), in_turn("model.layers=4"));
}

// Bytes of the device that updates of state from the host take.
std::int64_t updates_take(const std::vector<std::string>& sets, const std::string& tile) {
  const Assembly assembly(tiny_recipe(with({"device.plugin=cpu-async", "precision.compute=bf16",
                                            "run.bucket_bytes=0B", "model.vocab=64"},
                                           sets),
                                      updated_here + tile),
                          plugins());
  return bytes_in(assembly, {0, Space::device}, Region::update);
}

TEST(Offload, OfStateThatComesByTensorsThreeAreThereHoweverManyLayers) {
  const std::vector<std::string> four = {"model.layers=4", "model.hidden=256"},
                                 twelve = {"model.layers=12", "model.hidden=256"};
  EXPECT_EQ(updates_take(four, by_tensor), updates_take(twelve, by_tensor));
  EXPECT_LT(updates_take(four, by_tensor), updates_take(four, by_layer) / 3);
}

TEST(Offload, StateComesByTensorsWhereThereIsNoRoomForLayers) {
  const auto planned = [](const std::vector<std::string>& sets) {
    return Assembly(tiny_recipe(with({"device.plugin=cpu-async", "model.hidden=256", "model.layers=4"}, sets),
                                updated_here),
                    plugins());
  };
  const Assembly whole = planned({});
  EXPECT_EQ(whole.program().requests().said_to_fit.front().find("tensor"), std::string::npos);
  const std::int64_t needed = whole.plan().layout.ranges.front().bytes();
  const Assembly tiled = planned({"device.memory=" + std::to_string(needed - 1) + "B"});
  EXPECT_NE(tiled.program().requests().said_to_fit.front().find(", updated tensor by tensor"),
            std::string::npos);
  EXPECT_LT(tiled.plan().layout.ranges.front().bytes(), needed);
}

// In whole tensors, which are small beside all of them.
TEST(Offload, EachTierHasItsPerCentOfTheState) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16",
                                         "model.layers=4", "model.hidden=256"};
  constexpr MemoryPlace own{0, Space::device}, host{1, Space::host}, disk{2, Space::disk};
  const auto shares = [&](const std::string& asked) {
    const Assembly assembly(tiny_recipe(sets, offloaded(false, false, false, asked) + on_drives), plugins());
    std::vector<double> bytes;
    for (const MemoryPlace place : {own, host, disk})
      bytes.push_back(static_cast<double>(bytes_in(assembly, place, Region::state)));
    const double all = bytes[0] + bytes[1] + bytes[2];
    EXPECT_GE(all, 12 * static_cast<double>(assembly.parameters()));
    for (double& one : bytes) one *= 100 / all;
    return bytes;
  };
  constexpr double near = 3;
  const std::vector<double> two = shares("host:70, nvme:30"), three = shares("nvme:20,device:45, host : 35");
  EXPECT_EQ(two[0], 0);
  EXPECT_NEAR(two[1], 70, near);
  EXPECT_NEAR(two[2], 30, near);
  EXPECT_NEAR(three[0], 45, near);
  EXPECT_NEAR(three[1], 35, near);
  EXPECT_NEAR(three[2], 20, near);
}

// Of a region, what lies on the device, in the host's memory and on drives.
std::vector<double> percents_of(const Assembly& assembly, Region region) {
  std::vector<double> percents;
  for (const MemoryPlace place : {MemoryPlace{0, Space::device}, {0, Space::pinned}, {2, Space::disk}})
    percents.push_back(
        100 * static_cast<double>(bytes_in(assembly, place, region)) /
        static_cast<double>(assembly.plan().layout.memory.bytes[static_cast<std::size_t>(region)]));
  return percents;
}

void expect_near(const std::vector<double>& percents, const std::vector<double>& asked) {
  constexpr double near = 6;
  for (std::size_t i = 0; i < asked.size(); ++i) EXPECT_NEAR(percents[i], asked[i], near) << i;
}

const std::vector<std::string> four_wide_layers = {"device.plugin=cpu-async", "precision.compute=bf16",
                                                   "model.layers=4", "model.hidden=256",
                                                   "batch.order=breadth_first"};

TEST(Offload, EachTierHasItsPerCentOfParametersGradientsAndWhatIsSaved) {
  const Assembly assembly(
      tiny_recipe(four_wide_layers, offloaded() + "parameters = 'device:40, host:30, nvme:30'\n" +
                                        "gradients = 'device:40, host:30, nvme:30'\n" +
                                        "activations = 'nvme:20, device:50, host:30'\n" + on_drives),
      plugins());
  expect_near(percents_of(assembly, Region::parameter), {40, 30, 30});
  expect_near(percents_of(assembly, Region::gradient), {40, 30, 30});
  expect_near(percents_of(assembly, Region::slot), {50, 30, 20});
}

// What was saved is known to the plan alone.
TEST(Offload, ThePlanSaysHowManyPerCentLieWhere) {
  const Assembly assembly(
      tiny_recipe(four_wide_layers,
                  offloaded() + "activations = 'nvme:20, device:50, host:30'\n" + on_drives),
      plugins());
  const std::vector<double> saved = percents_of(assembly, Region::slot);
  const std::string text = plan_text(assembly, forecast(assembly, plugins(), {})),
                    shares = format(
                        "  %.0f %% in device memory, %.0f %% in pinned host memory, %.0f %% in disk of "
                        "device 2\n",
                        saved[0], saved[1], saved[2]);
  EXPECT_LT(text.find("\n  saved "), text.find(shares)) << text;
  EXPECT_NE(text.find(shares), std::string::npos) << text;
  const JsonValue plan = parse_json(plan_json(assembly, forecast(assembly, plugins(), {})), "plan");
  std::int64_t bytes = 0;
  for (const JsonValue& range : plan.at("ranges").as_array())
    if (range.at("space").as_string() != "device memory") bytes += range.at("memory").at("saved").as_int64();
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, bytes_in(assembly, {0, Space::pinned}, Region::slot) +
                       bytes_in(assembly, {2, Space::disk}, Region::slot));
}

// Ranks that keep it in parts have few tensors, which may be far from it: so much is said.
TEST(Offload, ThePlanSaysHowNearToThePerCentItCame) {
  const auto said = [](const std::vector<std::string>& sets, const std::string& more) {
    return Assembly(tiny_recipe(with(sets, {"precision.compute=bf16"}), more), plugins())
        .program()
        .requests()
        .said_to_fit;
  };
  using Said = std::vector<std::string>;
  const std::string halves = offloaded(false, false, false, "host:50, nvme:50");
  EXPECT_EQ(said({"batch.micro=2"}, data_and_zero + halves + on_drives),
            Said{"offload: optimizer state lies 44 % in the host's memory and 56 % on nvme"});
  EXPECT_EQ(
      said({"model.layers=12"}, halves + "gradients = 'host'\n" + on_drives),
      Said{"offload: optimizer state lies 50 % in the host's memory and 50 % on nvme; gradients lie in the "
           "host's memory"});
  EXPECT_EQ(
      said({"model.layers=12", "batch.order=breadth_first"},
           offloaded() + "gradients = 'host:50, nvme:50'\nactivations = 'device:70, host:30'\n" + on_drives),
      Said{"offload: gradients lie 45 % in the host's memory and 55 % on nvme; activations lie 70 % on the "
           "device and 30 % in the host's memory, as near as whole tensors of a layer come; optimizer "
           "state lies in the host's memory"});
}

// What backward reads of forward, the boundaries included where it is computed again.
TEST(Offload, WhatIsSavedElsewhereTakesTwoLayersOfTheDevice) {
  constexpr MemoryPlace own{0, Space::device}, pinned{0, Space::pinned};
  const std::string recompute = "[[strategy]]\nplugin = 'recompute'\n";
  for (const std::string& more : {std::string(), recompute}) {
    const auto on_device = [&](const char* layers) {
      const Assembly assembly(
          tiny_recipe({"device.plugin=cpu-async", layers}, more + offloaded(false, false, true)), plugins());
      EXPECT_GT(bytes_in(assembly, pinned, Region::slot), 0);
      EXPECT_EQ(bytes_in(assembly, own, Region::slot), 0);
      return bytes_in(assembly, own, Region::boundary) + bytes_in(assembly, own, Region::leaving);
    };
    EXPECT_EQ(on_device("model.layers=4"), on_device("model.layers=12"));
  }
}

// All that counts bytes of the first device counts none of the optimizer's.
TEST(Offload, TheDeviceNeedsRoomForParametersAndGradientsAlone) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16"};
  const Assembly plain(tiny_recipe(sets), plugins()), moved(tiny_recipe(sets, offloaded()), plugins());
  const auto state = plain.plan().layout.memory.bytes[static_cast<std::size_t>(Region::state)];
  EXPECT_GE(state, 12 * plain.parameters());
  EXPECT_LE(moved.bytes_in_memory_of(0, moved.plan()), plain.bytes_in_memory_of(0, plain.plan()) - state);
}

// Gradients and parameters to the host, parameters back; beside them what steps load and report.
TEST(Offload, ThePlanSaysWhatIsMoved) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16"};
  const Assembly plain(tiny_recipe(sets), plugins()), moved(tiny_recipe(sets, offloaded()), plugins());
  const MovedBytes usual = moved_bytes(plain.program(), plain.plan()),
                   all = moved_bytes(moved.program(), moved.plan());
  constexpr std::int64_t scalars = 4 * 8;  // rate, step, clip, keep
  EXPECT_EQ(all.to_host - usual.to_host, (4 + 2) * moved.parameters() + scalars);
  EXPECT_EQ(all.to_device - usual.to_device, 2 * moved.parameters());
  EXPECT_NE(plan_text(moved, forecast(moved, plugins(), {})).find("\noffload     "), std::string::npos);
  EXPECT_EQ(plan_text(plain, forecast(plain, plugins(), {})).find("\noffload     "), std::string::npos);
  EXPECT_NE(plan_json(moved, forecast(moved, plugins(), {}))
                .find("\"offload\":{\"to_host_bytes\":" + std::to_string(all.to_host)),
            std::string::npos);
}

// Seconds: a segment's gradients and parameters to the host 1, its parameters back 3, each pass through it 1,
// its update as said; all else takes no time.
class LinkCostModel final : public CostModel {
 public:
  explicit LinkCostModel(double update = 0) : update_(update) {}
  double kernel(const Program& program, const PlannedStep& step) override {
    const Op& op = program.op(step.op);
    if (op.segment == program.step_segment()) return 0;
    if (op.function == FunctionKind::forward || op.function == FunctionKind::backward)
      return step.op == program.segment(op.segment).ops(op.function).back() ? 1 : 0;
    if (op.function != FunctionKind::update) return 0;
    if (!op.def->copies) return step.op == last_update(program, op.segment) ? update_ : 0;
    const bool to_host = step.operands.front().address.range == 0;
    double alike = 0;
    for (const Id id : program.segment(op.segment).ops(FunctionKind::update))
      alike += program.op(id).def->copies && is_back(program.op(id), program) != to_host;
    return (to_host ? 1 : 3) / alike;
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 0; }

 private:
  static Id last_update(const Program& program, Id segment) {
    Id last = none;
    for (const Id id : program.segment(segment).ops(FunctionKind::update))
      if (!program.op(id).def->copies) last = id;
    return last;
  }
  static bool is_back(const Op& op, const Program& program) {
    return program.value(op.operands.back()).role == Role::parameter;
  }

  double update_;
};

// Five steps of one rank, by these prices.
Forecast forecast_by(CostModel& cost_model, const Assembly& assembly, std::optional<double> host_rate = {}) {
  Forecast predicted;
  predicted.prediction =
      Prediction{simulate(all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); }),
                          cost_model, {5}),
                 false,
                 {},
                 {},
                 host_rate};
  return predicted;
}

// Of embedding, two layers and head, the parameters are back 4, 7, 10 and 13 after gradients began to leave:
// forward, a second each, is held up for 4, the first of which the gradients take, then for 2, 2 and 2.
TEST(Offload, ThePlanSaysWhatOfTheLinksNothingHides) {
  const Assembly assembly(
      tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "model.tied=false"}, offloaded()),
      plugins());
  LinkCostModel cost_model;
  Forecast predicted = forecast_by(cost_model, assembly);
  EXPECT_NEAR(predicted.prediction->simulation.step_seconds, 4 + 4 + 10, 1e-9);
  const Links links = links_of(predicted.prediction->simulation.ranks.front());
  EXPECT_NEAR(links.to_host.busy, 4, 1e-9);
  EXPECT_NEAR(links.to_host.exposed, 1, 1e-9);
  EXPECT_NEAR(links.to_device.busy, 12, 1e-9);
  EXPECT_NEAR(links.to_device.exposed, 9, 1e-9);
  EXPECT_NEAR(links.passes, 8, 1e-9);
  const std::string text = offload_text(assembly, predicted);
  for (const char* const line : {"link to the device busy for 12 s a step, 3 s of it hidden, 9 s exposed",
                                 "link to the host   busy for 4 s a step, 3 s of it hidden, 1 s exposed",
                                 "144 tokens a step rather than 64 would hide the rest"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

// Updates of five seconds each: parameters are back 9, 14, 19 and 24 after gradients began to leave, and the
// link carries them for three seconds of each time that forward waits. The rest is the updates'.
TEST(Offload, ALinkIsNotToBlameForWhatItWaitsForItself) {
  const Assembly assembly(
      tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "model.tied=false"}, offloaded()),
      plugins());
  LinkCostModel cost_model(5);
  const Forecast predicted = forecast_by(cost_model, assembly);
  const RankTimes& rank = predicted.prediction->simulation.ranks.front();
  EXPECT_NEAR(rank.times.exposed_transfers, 9 + 4 + 4 + 4, 1e-9);
  const Links links = links_of(rank);
  EXPECT_NEAR(links.to_device.busy, 12, 1e-9);
  EXPECT_NEAR(links.to_device.exposed, 12, 1e-9);
  EXPECT_NEAR(links.to_host.exposed, 1, 1e-9);
}

// Each byte between device and host once, those of updates on the host's cores as often as they are read and
// written; over a link nothing else. Where the device's memory is the host's, there is no link, and both
// sides of a copy count.
TEST(Offload, WhatPassesTheHostsMemoryIsCounted) {
  for (const bool own : {true, false}) {
    const Assembly assembly(
        tiny_recipe({own ? "device.plugin=cpu-async" : "device.plugin=cpu", "precision.compute=bf16"},
                    offloaded()),
        plugins());
    const Program& program = assembly.program();
    const CostTable table;
    TableCostModel cost_model(table, {"one", "other"}, {!own, true});
    double host = 0, updated = 0, to_device = 0, to_host = 0;
    for (const Call& call : assembly.plan().calls)
      for (const PlannedStep& step : assembly.plan().steps(call)) {
        const Carried carried = cost_model.carried(program, assembly.plan(), step);
        host += carried.host;
        if (step.kernel && !program.op(step.op).def->copies) updated += carried.host;
        if (carried.link == 0) to_device += carried.link_bytes;
        if (carried.link == 1) to_host += carried.link_bytes;
      }
    const MovedBytes moved = moved_bytes(program, assembly.plan());
    const auto between = static_cast<double>(moved.to_host + moved.to_device);
    EXPECT_EQ(to_device, own ? static_cast<double>(moved.to_device) : 0);
    EXPECT_EQ(to_host, own ? static_cast<double>(moved.to_host) : 0);
    // Gradient, parameter, master copy and moments: read, and all but the first written.
    EXPECT_NEAR(updated / static_cast<double>(assembly.parameters()), 4 + 2 * (2 + 12), 0.1);
    EXPECT_NEAR(host - updated, (own ? 1 : 2) * between, 0.01 * between);
  }
}

// Every kernel at a nanosecond a byte.
CostTable table_for(const Assembly& assembly) {
  CostTable table;
  table.machine = this_machine();
  for (const PlannedFunction& function : assembly.plan().functions)
    for (const PlannedStep& step : function.steps)
      if (step.kernel) {
        const Op& op = assembly.program().op(step.op);
        const DType type = element_type(assembly.program().local_shape(op));
        table.kernels[{std::string(op.kind()), type, step.device == 0 ? "own" : "host"}] = {0, 0, 1e-9};
      }
  return table;
}

// As much as all ask for at once holds nobody up; less does, and more ranks on a host share what there is.
TEST(Offload, APredictedStepTakesLongerWhereTheHostsMemoryCarriesLess) {
  const auto assembly_of = [](const std::string& layout) {
    return std::make_unique<Assembly>(
        tiny_recipe({"device.plugin=cpu-async", "comm.default=meet-async", "precision.compute=bf16",
                     "batch.micro=1", "batch.global=2", "model.layers=8"},
                    layout + offloaded(true, false)),
        plugins());
  };
  const auto alone = assembly_of(""), two = assembly_of(data_parallel(2));
  const auto seconds = [](const Assembly& assembly, std::optional<double> gb_per_second,
                          std::int64_t ranks_of_host = 0) {
    CostTable table = table_for(assembly);
    table.host_gb_per_second = gb_per_second;
    table.exchanges[{CommKind::all_reduce, 2}] = {{{1024, 1e-9}}};
    SimulateOptions options;
    options.ranks_of_host = ranks_of_host;
    return predict(
               all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
               table, {"own", "host"}, this_machine(), options, {false, true})
        .simulation.step_seconds;
  };
  const double unbound = seconds(*alone, {});
  EXPECT_EQ(seconds(*alone, 100), unbound);
  EXPECT_GT(seconds(*alone, 0.8), 1.02 * unbound);
  EXPECT_EQ(seconds(*two, 100, 2), seconds(*two, 100, 1));
  EXPECT_GT(seconds(*two, 0.8, 2), 1.02 * seconds(*two, 0.8, 1));
}

// Those of what is all in the host's memory need not wait, and those that may not begin for want of a limit
// are no news.
TEST(Offload, ThePlanSaysWhyUpdatesWaitForTheNorm) {
  const auto said = [](const std::string& strategies, const std::string& clip) {
    const std::string text = offload_text(
        Assembly(tiny_recipe({"batch.order=breadth_first", "optimizer.clip=" + clip}, strategies), plugins()),
        {});
    const std::size_t at = text.find("  updates wait for the norm of all gradients, since they fetch from ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  const auto wait_for = [](const std::string& places) {
    return "  updates wait for the norm of all gradients, since they fetch from " + places +
           "; those of what is all in the host's memory need not";
  };
  const std::string drives = temporary_folder().string();
  EXPECT_EQ(said(offloaded_to_drives(drives, true, true), "1"), wait_for("drives"));
  EXPECT_EQ(said(offloaded_to_drives(drives), "1"), wait_for("drives and device memory"));
  EXPECT_EQ(said(offloaded(), "1"), wait_for("device memory"));
  for (const std::string& strategies : {offloaded(true, true, true), updated_here})
    EXPECT_EQ(said(strategies, "1"), "") << strategies;
  EXPECT_EQ(said(offloaded(), "0"), "");
}

TEST(Offload, ThePlanSaysWhatTheHostsMemoryHolds) {
  const Assembly assembly(tiny_recipe({"device.plugin=cpu-async"}, offloaded()), plugins());
  LinkCostModel cost_model;
  Forecast predicted = forecast_by(cost_model, assembly, 2e9);
  predicted.prediction->simulation.ranks[0].host_bytes = 1 << 30;
  predicted.prediction->simulation.ranks[0].slowed = 0.25;
  const std::string text = offload_text(assembly, predicted);
  EXPECT_NE(
      text.find("memory of the host 1.00 GiB a step and rank, at 2.0 GB/s (537 ms); sharing it and links "
                "makes updates and copies 250 ms longer"),
      std::string::npos)
      << text;
  predicted.prediction->host_bandwidth.reset();
  EXPECT_EQ(offload_text(assembly, predicted).find("memory of the host"), std::string::npos);
}

// Every kernel, and the host's memory, at a speed of its own.
CostTable drawn_table(const Assembly& assembly, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&] { return std::exp2(static_cast<double>(random() % 12) - 6); };
  CostTable table;
  table.machine = this_machine();
  table.host_gb_per_second = draw();
  for (const PlannedFunction& function : assembly.plan().functions)
    for (const PlannedStep& step : function.steps)
      if (step.kernel) {
        const Op& op = assembly.program().op(step.op);
        const auto device = static_cast<std::size_t>(step.device);
        table.kernels[{std::string(op.kind()), element_type(assembly.program().local_shape(op)),
                       std::string(assembly.device_infos()[device].name.view())}] = {0, 0, 1e-9 * draw()};
      }
  return table;
}

// Where all share the host's memory, a step may even be quicker for what comes later: that is no time which
// drives expose.
TEST(Offload, DrivesThatTakeTimeNeverExposeLessThanNone) {
  const std::filesystem::path costs = temporary_folder() / "drawn.json";
  const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16"},
                                      offloaded_to_drives("/tmp", true, true)),
                          plugins());
  const auto forecast_of = [&](const CostTable& table) {
    std::filesystem::remove(costs);
    merge_costs(costs, table);
    return forecast(assembly, plugins(), costs);
  };
  double least = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    CostTable table = drawn_table(assembly, seed);
    const Forecast with = forecast_of(table);
    for (auto& [key, fit] : table.kernels)
      if (key.device.starts_with("nvme")) fit = {};
    const double longer =
        with.prediction->simulation.step_seconds - forecast_of(table).prediction->simulation.step_seconds;
    least = std::min(least, longer);
    EXPECT_EQ(with.exposed.drives, std::max(0.0, longer)) << seed;
  }
  EXPECT_LT(least, 0);
}

// Where activations leave, more tokens are more to carry.
TEST(Offload, NoNumberOfTokensHidesWhatGrowsWithThem) {
  Links links;
  links.to_device = {12, 10};
  links.passes = 8;
  EXPECT_DOUBLE_EQ(tokens_to_hide(links, 64), 144);
  links.grow = true;
  EXPECT_EQ(tokens_to_hide(links, 64), 0);
}

// What is fetched twice, what leaves once, and nothing of the update.
TEST(Offload, ThePlanSaysWhatIsMovedWhereAllLiesOnTheHost) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16",
                                         "model.layers=12"};
  const Assembly plain(tiny_recipe(sets), plugins()),
      moved(tiny_recipe(sets, offloaded(true, true)), plugins());
  const MovedBytes usual = moved_bytes(plain.program(), plain.plan()),
                   all = moved_bytes(moved.program(), moved.plan());
  constexpr std::int64_t scalars = 5 * 8;  // rate, step, factor, keep and halt
  EXPECT_EQ(all.to_host - usual.to_host, 4 * moved.parameters() + scalars);
  EXPECT_GT(all.to_device - usual.to_device, 2 * 3 * moved.parameters() / 2);
  EXPECT_LE(all.to_device - usual.to_device, 2 * 2 * moved.parameters());
}

// Evaluation is a second program over the same parameters, without updates.
TEST(Offload, EvaluationFindsTheParametersThatCameBack) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16", "eval.every=1",
                                         "eval.batches=2", "data.validation=0.2"};
  const auto losses = [&](const std::string& more) {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
    Trainer trainer(assembly, plugins());
    std::vector<double> all = {trainer.evaluate().whole.loss};
    for (int part = 0; part < 3; ++part) {
      for (const double loss : train_steps(trainer, 2)) all.push_back(loss);
      all.push_back(trainer.evaluate().whole.loss);
    }
    return all;
  };
  EXPECT_EQ(losses(offloaded()), losses(""));
  EXPECT_EQ(losses(offloaded(true, true)), losses(""));
  EXPECT_EQ(losses(drives_alone("/tmp")), losses(""));
}

// Of a segment with a single vector, the last ranks' part has no parameter in it.
TEST(Offload, APartThatIsPaddingAloneIsFetchedAsAnyOther) {
  std::string text = data_and_zero;
  text.replace(text.find("stage = 2"), 9, "stage = 3");
  const auto run = [&](const std::string& more) {
    return run_ranks(tiny_recipe({"model.plugin=llama", "model.ffn=64", "device.plugin=cpu-async",
                                  "comm.default=meet-async", "batch.micro=1", "batch.global=2"},
                                 text + more),
                     3);
  };
  EXPECT_EQ(run(offloaded(true, true)), run(""));
}

// ---------------------------------------------------------------- what is refused

TEST(Offload, WhatCannotLieThereIsRefusedWithAReason) {
  const auto message = [](const std::vector<std::string>& sets, const std::string& more) -> std::string {
    try {
      const Assembly assembly(tiny_recipe(sets, more), plugins());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto holds = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  // Several microbatches add up on the device, or elsewhere in between: see offload_sums_test.cpp.
  EXPECT_EQ(message({"batch.micro=2"}, offloaded(false, true)), "");
  holds(message({"batch.micro=1"}, data_and_zero + offloaded(true, false)), "(strategy zero, stage = 3)");
  holds(message({"batch.micro=1", "batch.order=breadth_first"}, data_and_zero + offloaded(false, true)),
        "once a step: the ranks of axis");
  holds(message({}, "[[strategy]]\nplugin = 'offload'\noptimizer = 'device'\nparameters = 'host'\n"),
        "set optimizer = \"host\" or a tier too");
  holds(message({}, automatic_offload + "parameters = 'host'\n"), "leave these out");
  holds(message({}, updated_here + "gradients = 'host'\n"), "or leave update out");
  std::string zero3 = data_and_zero;
  zero3.replace(zero3.find("stage = 2"), 9, "stage = 3");
  const auto of_shares = [&](const std::string& shares, const std::string& more = "") {
    return message({}, offloaded(false, false, false, shares) + more);
  };
  for (const char* const wrong :
       {"Tape", "host:100", "host:70", "host:70, nvme:20", "host:50, host:50", "host:x, nvme:30",
        "host:70; nvme:30", "host:0, nvme:100", "auto:50, host:50", ""})
    holds(
        of_shares(wrong),
        "; it may be device, host, the name of a tier's plugin, auto, or per cent in several of all but the "
        "last");
  holds(of_shares("tape"), "there is no tier 'tape'; a tier is named by its device plugin");
  for (const std::string key : {"parameters", "gradients", "activations"})
    holds(message({}, offloaded() + key + " = 'host:70'\n"),
          (key + " is \"host:70\"; it may be device").c_str());
  holds(message({"batch.micro=2"}, zero3 + offloaded() + "parameters = 'device:40, host:60'\n"),
        "; place all parameters in one memory, or leave strategy zero out");
  holds(message({"batch.micro=2"}, zero3 + offloaded() + "gradients = 'device:40, host:60'\n"),
        "; place all gradients in one memory, or leave strategy zero out");
  EXPECT_EQ(message({"batch.micro=2"}, offloaded() + "gradients = 'device:90, host:10'\n"), "");
  holds(message({}, updated_here + "gradients = 'device:40, host:60'\n"), "or leave update out");
  holds(message({},
                "[[strategy]]\nplugin = 'offload'\noptimizer = 'device'\ngradients = 'device:9, host:91'\n"),
        "set optimizer = \"host\" or a tier too");
  holds(of_shares("host:70, nvme:30", "update = 'device'\n" + on_drives), "or leave update out");
}

// A machine that grows shows less than it will have: whoever knows it says so.
TEST(Offload, TheHostHasWhatTheSystemShowsOrWhatIsSaid) {
  const auto planned_for = [](const char* gib) -> std::string {
    try {
      const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "model.vocab=200000",
                                           "model.hidden=1024", std::string("tier.cpu.host_gib=") + gib},
                                          offloaded()),
                              plugins());
    } catch (const Error& error) {
      return error.what();
    }
    return "planned";
  };
  const std::string refused = planned_for("1");
  EXPECT_NE(refused.find("1.00 GiB may be used in all"), std::string::npos) << refused;
  EXPECT_TRUE(
      refused.ends_with("where the machine has more than the system shows, tier.cpu.host_gib says so"))
      << refused;
  EXPECT_EQ(planned_for("100"), "planned");
}

}  // namespace
}  // namespace prun::test::offload_test
