// Optimizer state on drives: the bits are those of training without it, whatever goes wrong once; what goes
// wrong for good ends the run with a sentence, and the last checkpoint stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/text.hpp"
#include "cli/binary.hpp"
#include "estimate/forecast.hpp"
#include "estimate/moved_bytes.hpp"
#include "estimate/simulate.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::training_test {
namespace {

constexpr int steps = 20;

using Results = std::vector<std::vector<double>>;

Results results_of(const Recipe& recipe, PluginHost& host, int of_steps = steps) {
  Results results(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, host.places(), [&](Trainer& trainer) {
    std::vector<double> numbers = train_steps(trainer, of_steps);
    const std::vector<double> parameters = parameters_of(trainer);
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
    results[static_cast<std::size_t>(trainer.assembly().rank())] = std::move(numbers);
  });
  return results;
}

class OnDrives : public testing::TestWithParam<std::tuple<Layout, Target>> {};

TEST_P(OnDrives, TwentyStepsHaveTheBitsOfThoseWithout) {
  const auto& [layout, target] = GetParam();
  const TempFolder folder;
  const auto run = [&](const std::string& more) {
    return run_ranks(tiny_recipe(with(layout.sets, target.sets), layout.text + more), steps);
  };
  EXPECT_EQ(run(offloaded_to_drives(folder.path())), run(""));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::string name_of_pair(const testing::TestParamInfo<std::tuple<Layout, Target>>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, OnDrives,
                         testing::Combine(testing::ValuesIn(layouts()), testing::ValuesIn(targets())),
                         name_of_pair);
INSTANTIATE_TEST_SUITE_P(Formats, OnDrives,
                         testing::Combine(testing::ValuesIn(optimizer_formats()),
                                          testing::ValuesIn(targets())),
                         name_of_pair);

// Poison looks at every kernel, and ranks compare what they have alike, there too.
TEST(Drives, ArePartOfEveryWatch) {
  const TempFolder folder;
  const std::vector<std::string> sets = {"run.poison=true", "run.check_replicas_every=1", "comm.default=meet",
                                         "batch.micro=1", "device.threads=1"};
  EXPECT_EQ(run_ranks(tiny_recipe(sets, data_parallel(2) + offloaded_to_drives(folder.path())), 5),
            run_ranks(tiny_recipe(sets, data_parallel(2)), 5));
}

TEST(Drives, SeveralAndThreadsAndTheCacheGiveTheSameBits) {
  const TempFolder folder;
  folder.write("one/x", "");
  folder.write("two/x", "");
  const std::string text = offloaded_to_drives(folder.path());
  const Results expected = run_ranks(tiny_recipe(), 5);
  for (const char* more : {"tier.nvme.io=threads", "tier.nvme.direct=false", "tier.nvme.depth=1"})
    EXPECT_EQ(run_ranks(tiny_recipe({"tier.nvme.stripe_kib=4", more,
                                     "tier.nvme.paths=[" + (folder / "one") + "," + (folder / "two") + "]"},
                                    text),
                        5),
              expected)
        << more;
}

// ---------------------------------------------------------------- checkpoints

// Saved on one tier, gone on with on another: as if nothing had been.
TEST(Drives, ARunGoesOnFromAnyTierOnAnyOther) {
  const std::string kinds[] = {"",
                               offloaded(),
                               offloaded() + "update = 'device'\n",
                               offloaded_to_drives("/tmp"),
                               drives_alone("/tmp"),
                               shared_by_all("/tmp")};
  const std::vector<std::string> sets = {"precision.compute=bf16", "batch.order=breadth_first"};
  const Results expected = run_ranks(tiny_recipe(sets), 8);
  const std::vector<double> parameters(expected[0].begin() + 8, expected[0].end());
  for (const std::string& from : kinds)
    for (const std::string& to : kinds) {
      const TempFolder out;
      {
        const Assembly assembly(tiny_recipe(with(sets, {"run.out=" + (out / "a")}), from), plugins());
        Trainer trainer(assembly, plugins());
        train_steps(trainer, 4);
        trainer.save();
      }
      const Assembly assembly(
          tiny_recipe(with(sets, {"run.out=" + (out / "b"), "run.resume=" + (out / "a")}), to), plugins());
      Trainer trainer(assembly, plugins());
      train_steps(trainer, 4);
      EXPECT_EQ(parameters_of(trainer), parameters) << "from " << from << "to " << to;
    }
}

// A save holds what it reads from a drive against the sums by which ranks compared it.
TEST(Drives, StateThatRanksShareIsSaved) {
  const TempFolder folder;
  const Recipe recipe = tiny_recipe({"run.out=" + (folder / "run"), "batch.micro=2"},
                                    data_parallel(2) + offloaded_to_drives(folder.path()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    train_steps(trainer, 2);
    trainer.compare_replicas();
    trainer.save();
  });
  const std::filesystem::recursive_directory_iterator files(folder / "run");
  EXPECT_EQ(std::count_if(begin(files), end(files),
                          [](const auto& file) { return file.path().filename() == "step-00000002"; }),
            1);
}

// ---------------------------------------------------------------- what is under way at the same time

// Seconds: a state's way to memory, all updates of an instance and the way back as long as each other.
class DriveCostModel final : public CostModel {
 public:
  double kernel(const Program& program, const PlannedStep& step) override {
    const Op& op = program.op(step.op);
    if (op.function != FunctionKind::update) return 1e-6;
    const bool on_drives = step.device == 2;
    return on_drives || !op.def->copies ? 1e-3 : 1e-6;
  }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-6; }
};

TEST(Drives, ReadWhileTheyWriteAndUpdatesRun) {
  const Assembly assembly(tiny_recipe({"model.layers=12", "device.plugin=cpu-async", "optimizer.plugin=sgd",
                                       "optimizer.momentum=0.9"},
                                      offloaded_to_drives("/tmp")),
                          plugins());
  std::map<std::string, double> busy;
  DriveCostModel cost_model;
  for (const Call& call : assembly.plan().calls)
    for (const PlannedStep& step : assembly.plan().steps(call))
      if (step.kernel)
        busy[assembly.plan().queues[static_cast<std::size_t>(call.queue)].name] +=
            cost_model.kernel(assembly.program(), step);
  const Simulation simulation = simulate(
      all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); }), cost_model, {5});
  const double longest = std::max({busy.at("nvme.write"), busy.at("nvme.read"), busy.at("compute.1")});
  EXPECT_GT(busy.at("nvme.write"), 0.1);
  EXPECT_LT(simulation.step_seconds, longest * 1.4)
      << busy.at("nvme.write") << " written, " << busy.at("nvme.read") << " read, " << busy.at("compute.1")
      << " updated";
}

// ---------------------------------------------------------------- bytes

TEST(Drives, NoMoreIsMovedThanEachUpdateNeeds) {
  const auto moved = [](const std::vector<std::string>& sets) {
    const Assembly assembly(tiny_recipe(with({"device.plugin=cpu-async"}, sets), offloaded_to_drives("/tmp")),
                            plugins());
    const MovedBytes all = moved_bytes(assembly.program(), assembly.plan());
    EXPECT_EQ(all.from_disk, all.to_disk);
    return static_cast<double>(all.from_disk + all.to_disk) / static_cast<double>(assembly.parameters());
  };
  EXPECT_EQ(moved({"precision.compute=bf16"}), 24);
  EXPECT_EQ(moved({"precision.compute=bf16", "precision.master=split"}), 20);
  EXPECT_EQ(moved({"precision.compute=bf16", "precision.moments=bf16"}), 16);
  EXPECT_LE(moved({"precision.compute=bf16", "precision.master=split", "precision.moments=8bit",
                   "model.hidden=128"}),
            8.5);
  EXPECT_EQ(moved({}), 16) << "an fp32 parameter is its own master copy";
}

// Beside the state's 24 bytes: parameters to forward, to backward but for the last layers, which are there
// still, and to the update and back; fp32 gradients there and back.
TEST(Drives, WhereAllLiesThereItIsMovedOnceAUse) {
  const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "model.layers=12",
                                       "batch.order=breadth_first", "run.bucket_bytes=0B"},
                                      drives_alone("/tmp")),
                          plugins());
  const MovedBytes all = moved_bytes(assembly.program(), assembly.plan());
  const auto of_each = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(assembly.parameters());
  };
  EXPECT_GT(of_each(all.from_disk), 12 + 4 + 2 + 1.5 * 2);
  EXPECT_GT(of_each(all.to_disk), 12 + 4 + 2);
  for (const prun::Layout::Range& range : assembly.plan().layout.ranges)
    for (const Region region : {Region::parameter, Region::state, Region::gradient, Region::slot})
      if (range.place.space == Space::disk)
        EXPECT_GT(range.memory.bytes[static_cast<std::size_t>(region)], 0) << name_of(region);
      else
        EXPECT_EQ(range.memory.bytes[static_cast<std::size_t>(region)], 0) << name_of(region);
}

// One buffer between a drive and whoever computes: memory that the device has pinned, or that the host's
// cores update in, in whole blocks; nobody on the host copies it once more.
TEST(Drives, ReachTheMemoryThatTheDeviceHasPinned) {
  const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16",
                                       "batch.order=breadth_first", "run.bucket_bytes=0B"},
                                      drives_alone("/tmp")),
                          plugins());
  const Plan& plan = assembly.plan();
  const auto place = [&](const PlannedOperand& operand) {
    return plan.layout.ranges[static_cast<std::size_t>(operand.address.range)].place;
  };
  std::int64_t of_drives = 0;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!step.kernel || !assembly.program().op(step.op).def->copies) continue;
      const PlannedOperand &from = step.operands.front(), &to = step.operands.back();
      const bool reads = place(from).space == Space::disk;
      if (!reads && place(to).space != Space::disk) {
        EXPECT_TRUE(place(from) == MemoryPlace{} || place(to) == MemoryPlace{}) << "copied on the host";
        continue;
      }
      const PlannedOperand& memory = reads ? to : from;
      EXPECT_EQ(plan.resolve(call, memory.address, 0) % 4096, 0);
      EXPECT_EQ(place(memory).space, place(memory).device == 0 ? Space::pinned : Space::host);
      ++of_drives;
    }
  EXPECT_GT(of_drives, 0);
}

// As many instances' at a time, however many there are, all of memory where everything lies there; what lies
// on drives is no memory.
TEST(Drives, MemoryDoesNotGrowWithWhatLiesThere) {
  const auto bytes = [](const char* layers, const std::string& more) {
    return Assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", layers}, more),
                    plugins())
        .plan()
        .layout;
  };
  const prun::Layout few = bytes("model.layers=12", offloaded_to_drives("/tmp")),
                     many = bytes("model.layers=24", offloaded_to_drives("/tmp")),
                     host = bytes("model.layers=24", offloaded());
  const auto at = static_cast<std::size_t>(Region::update);
  EXPECT_EQ(few.memory.bytes[at], many.memory.bytes[at]);
  EXPECT_LT(many.bytes_in_memory(), host.bytes_in_memory());
  EXPECT_GT(many.memory.total() - many.bytes_in_memory(), 8 * 24 * 12 * 32 * 32);
  const auto of_all = [&](const char* layers) {
    return Assembly(tiny_recipe({"device.plugin=cpu-async", "batch.order=breadth_first",
                                 "run.bucket_bytes=0B", layers},
                                "[[strategy]]\nplugin = 'recompute'\n" + drives_alone("/tmp")),
                    plugins())
        .plan()
        .layout.bytes_in_memory();
  };
  constexpr double counters = 1024;  // of what is not finite, by layer
  EXPECT_NEAR(static_cast<double>(of_all("model.layers=6")), static_cast<double>(of_all("model.layers=12")),
              counters);
}

// ---------------------------------------------------------------- refusals

std::string refusal(const std::vector<std::string>& sets, const std::string& more) {
  try {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
  return "nothing is refused";
}

TEST(Drives, WhatCannotWorkIsRefusedBeforeAnythingRuns) {
  const std::string text = offloaded_to_drives("/tmp");
  const auto contains = [](const std::string& whole, const std::string& part) {
    EXPECT_NE(whole.find(part), std::string::npos) << whole;
  };
  contains(refusal({"tier.nvme.paths=[]"}, text), "[tier.nvme] paths is empty; name a folder on each drive");
  contains(refusal({}, "[[strategy]]\nplugin = 'offload'\noptimizer = 'nvme'\n"),
           "[tier.nvme] paths is empty");
  contains(refusal({"tier.nvme.paths=[/no/such]"}, text),
           "/no/such of tier nvme: No such file or directory; create it");
  contains(refusal({"tier.nvme.stripe_kib=6"}, text), "stripe_kib is 6; it must be a multiple of 4");
  contains(refusal({"device.plugin=nvme", "device.paths=[/tmp]"}, ""),
           "'nvme' keeps bytes and computes nothing; name a device that");
}

// What does not fit is said with what would; a plan of another machine counts on what that has.
TEST(Drives, APlanIsMadeForTheRoomThatThereIs) {
  const std::vector<std::string> large = {"model.layers=600", "model.hidden=2048", "model.heads=16",
                                          "batch.order=breadth_first"};
  const auto planned_for = [&](const char* gib) {
    return refusal(with(large, {std::string("tier.nvme.plan_gib=") + gib}),
                   "[[strategy]]\nplugin = 'recompute'\n" + drives_alone("/tmp"));
  };
  const std::string refused = planned_for("100");
  EXPECT_NE(refused.find("device 2 ('nvme: /tmp'): the plan needs "), std::string::npos) << refused;
  EXPECT_NE(refused.find("100.00 GiB may be used in all"), std::string::npos) << refused;
  EXPECT_EQ(planned_for("1000"), "nothing is refused");
}

// Before any is started: each has its part of what the host's drives hold.
TEST(Drives, ACheckKnowsHowManyRanksShareThem) {
  const TempFolder folder;
  const std::string text = data_parallel(2) + offloaded_to_drives(folder.path());
  const Assembly assembly(tiny_recipe({"batch.micro=2"}, text), plugins());
  const std::vector<DeviceInfo>& devices = assembly.device_infos();
  const auto tier =
      std::find_if(devices.begin(), devices.end(), [](const DeviceInfo& device) { return device.tier; });
  const double gib = static_cast<double>(assembly.bytes_in_memory_of(
                         static_cast<std::size_t>(tier - devices.begin()), assembly.plan())) /
                     (1 << 30);
  const auto check = [&](double parts) {
    const std::string plan_gib = format("tier.nvme.plan_gib=%.9f", parts * gib);
    const std::string file =
        folder.write("shared.toml", tiny_recipe({"batch.micro=2", plan_gib}, text).resolved_toml());
    return prun({"check", file});
  };
  const Result one = check(1.5), both = check(2.5);
  EXPECT_EQ(one.code, 2) << one.out;
  EXPECT_NE(one.out.find("may be used in all"), std::string::npos) << one.out;
  EXPECT_EQ(both.code, 0) << both.out;
}

// Of parameters, gradients and state on all ranks' drives together; and what is in memory fits the machine.
TEST(Drives, LargeRecipesFitTheMachinesTheyAreFor) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "built without CUDA";
  for (const auto& [name, bytes_a_parameter] :
       {std::pair("llama-13b-nvme", 10.0), std::pair("llama-33b-nvme", 14.0)}) {
    const std::vector<std::string> sets = {"tier.nvme.plan_gib=1000", "tier.cpu.plan_gib=128"};
    const std::string file = std::string(PRUN_SOURCE_DIR "/configs/") + name + ".toml";
    const Assembly assembly(Recipe::load(file, sets, plugins().catalog()), plugins());
    const Plan& plan = assembly.plan();
    double bytes = 0;
    for (const prun::Layout::Range& range : plan.layout.ranges)
      for (const Region region : {Region::parameter, Region::gradient, Region::state})
        if (range.place.space == Space::disk)
          bytes += static_cast<double>(range.memory.bytes[static_cast<std::size_t>(region)]);
    EXPECT_NEAR(bytes * assembly.mesh().world() / static_cast<double>(assembly.parameters()),
                bytes_a_parameter, 0.01)
        << name;
    EXPECT_LE(assembly.bytes_in_memory_of(0, plan), std::int64_t{136} << 30) << name;
  }
}

// 1 TB of memory has no room for a copy of what is saved, and needs none.
TEST(Drives, SeventyBillionSaveThemselvesOnOneNode) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "built without CUDA";
  constexpr std::int64_t node = std::int64_t{931} << 30;
  const std::vector<std::string> sets = {"tier.nvme.plan_gib=4000", "tier.cpu.plan_gib=931"};
  const Assembly assembly(Recipe::load(PRUN_SOURCE_DIR "/configs/70b-nvme.toml", sets, plugins().catalog()),
                          plugins());
  const ProcessNeed& need = assembly.process_need();
  EXPECT_GT(need.saved_bytes, std::int64_t{900} << 30);
  EXPECT_GT(need.save_bytes, need.saved_bytes / 4);
  EXPECT_LT(need.save_bytes, need.saved_bytes / 2);
  EXPECT_LE(assembly.plan().layout.bytes_in_memory() - assembly.bytes_in_memory_of(0, assembly.plan()) +
                assembly.process_bytes(),
            node);
  const Forecast said = forecast(assembly, plugins(), {});
  ASSERT_TRUE(said.save);
  EXPECT_NEAR(said.save->seconds, 230, 2);
  EXPECT_LT(said.save->still, 160);
}

// A save takes the drives' time from the steps beside it, which need all of it where state lies there.
TEST(Drives, ASaveHoldsUpStepsByWhatItTakesOfTheirDrives) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "built without CUDA";
  const auto predicted = [](const char* place, const char* memory, const std::string& write_rate = "") {
    std::vector<std::string> sets = {"run.save_every=4",      detail::concat("run.save_memory=", memory),
                                     "device.plan_gpu=h200",  "device.plan_gib=139",
                                     "device.plan_units=4",   "tier={}",
                                     "tier.cpu.plan_gib=500", detail::concat("strategy.3.optimizer=", place)};
    if (place == std::string_view("nvme"))
      sets.insert(sets.end(), {"tier.nvme.paths=[\"/tmp\"]", "tier.nvme.plan_gib=400"});
    if (!write_rate.empty())
      sets.insert(sets.end(), {"tier.nvme.read_rate=[4.0]", "tier.nvme.write_rate=[" + write_rate + "]"});
    const Assembly assembly(
        Recipe::load(PRUN_SOURCE_DIR "/configs/llama-13b-nvme.toml", sets, plugins().catalog()), plugins());
    return forecast(assembly, plugins(), "h200").save.value();
  };
  const SaveForecast drives = predicted("nvme", "4GiB"), host = predicted("host", "4GiB");
  EXPECT_TRUE(drives.of_drives);
  EXPECT_GT(*drives.delay, drives.seconds);  // it reads there what it does not write
  EXPECT_FALSE(host.of_drives);
  EXPECT_LT(*host.delay, *drives.delay);
  // A copy reads them while training stands still, and is written beside it.
  const SaveForecast copied = predicted("nvme", "all"), from_memory = predicted("host", "all");
  EXPECT_GT(copied.still, 2 * from_memory.still);
  EXPECT_GE(*copied.delay, copied.still);
  EXPECT_EQ(*from_memory.delay, from_memory.still);
  // What it writes takes drives that the recipe calls quicker for less long.
  const SaveForecast slow = predicted("nvme", "all", "1.0"), quick = predicted("nvme", "all", "8.0");
  EXPECT_EQ(slow.still, quick.still);
  EXPECT_LT(slow.still, copied.still);
  EXPECT_LT(*quick.delay, *slow.delay);
}

// ---------------------------------------------------------------- what the planner chooses

const std::vector<std::string> one_microbatch = {"device.plugin=cpu-async", "precision.compute=bf16",
                                                 "model.layers=6", "batch.global=2", "batch.micro=2"};

std::string automatic_in(const TempFolder& folder) {
  return automatic_offload + "[tier.nvme]\npaths = ['" + folder.path() + "']\nchecksum = true\n";
}

struct Room {
  std::int64_t device = 0, host = 0;
};

// What a plan needs of device and host, the process of a rank included.
Room room_for(const std::vector<std::string>& sets, const std::string& more) {
  const Assembly assembly(tiny_recipe(sets, more), plugins());
  return {assembly.bytes_in_memory_of(0, assembly.plan()),
          assembly.bytes_in_memory_of(1, assembly.plan()) + assembly.process_bytes()};
}

// Of a machine that has no more.
std::vector<std::string> within(Room room, const std::vector<std::string>& sets) {
  constexpr double gib = 1 << 30;
  return with(sets, {"device.memory=" + std::to_string(room.device) + "B",
                     format("tier.cpu.plan_gib=%.17g", static_cast<double>(room.host) / gib)});
}

// With a byte less of the host's memory the next way is taken: by tensors, then state on drives, in the end
// all there is.
TEST(DrivesAuto, WhatTheHostHasNoRoomForGoesToDrives) {
  const TempFolder folder;
  // Saves read drives through some MiB of the process's memory: what goes there must be more.
  const std::vector<std::string> large = with(one_microbatch, {"model.hidden=256", "model.layers=6"});
  const auto said = [&](Room room) {
    const Assembly chosen(tiny_recipe(within(room, large), automatic_in(folder)), plugins());
    return chosen.program().requests().said_to_fit.at(0);
  };
  const std::string
      state_on_host = "offload: optimizer state lies in the host's memory",
      all_on_host =
          "offload: optimizer state, gradients, activations and parameters lie in the host's memory",
      tiled = ", updated tensor by tensor";
  Room state = room_for(large, offloaded()),
       all = room_for(large, offloaded(true, true, true) + "speculate = 'none'\n");
  constexpr std::int64_t numbers = 4096;  // bytes of the host that speculative updates take for none
  all.host += numbers;
  EXPECT_EQ(said(state), state_on_host);
  EXPECT_EQ(said(all), all_on_host);
  --state.host;
  EXPECT_EQ(said(state), state_on_host + tiled);
  all.host -= numbers + 1;
  EXPECT_EQ(said(all),
            "offload: gradients, activations and parameters lie in the host's memory; optimizer state lies "
            "on nvme");
  state = room_for(large, offloaded() + by_tensor);
  --state.host;
  EXPECT_EQ(said(state), "offload: optimizer state lies on nvme");
  const Room drives = room_for(large, offloaded(true, true, true, "nvme", "nvme") + by_tensor +
                                          "[tier.nvme]\npaths = ['" + folder.path() + "']\n");
  EXPECT_EQ(said(drives),
            "offload: optimizer state, gradients, activations and parameters lie on nvme" + tiled);
}

TEST(DrivesAuto, TheBitsAreThoseOfTrainingWithout) {
  const TempFolder folder;
  const Results expected = run_ranks(tiny_recipe(one_microbatch), steps);
  for (const std::string& candidate : {offloaded_to_drives(folder.path()), drives_alone(folder.path())}) {
    const std::vector<std::string> sets = within(room_for(one_microbatch, candidate), one_microbatch);
    EXPECT_EQ(run_ranks(tiny_recipe(sets, automatic_in(folder)), steps), expected) << candidate;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// State that comes to memory in turn is there for three instances, of the largest, or for three tensors, and
// for as many more as keep drives at work where there is room: with less than three the recipe is refused
// with what it takes, wherever updates run.
TEST(Drives, StateThatIsTooLargeInTurnIsRefusedWithTheBytesItTakes) {
  const std::vector<std::string> wide = with(one_microbatch, {"model.vocab=4096"});
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const auto said = [&](Room room, const std::string& candidate) {
    return refusal(within(room, wide), candidate);
  };
  for (const std::string& tile : {by_layer, by_tensor}) {
    const std::string drives =
                          offloaded(false, false, false, "nvme") + tile + "[tier.nvme]\npaths = ['/tmp']\n",
                      here = offloaded() + "update = 'device'\n" + tile;
    Room room = room_for(wide, drives);
    EXPECT_EQ(said(room, drives), "nothing is refused");
    if (tile == by_layer) {
      --room.host;
      const Room least = room_for(within(room, wide), drives);
      EXPECT_LT(least.host, room.host);
      room = least;
    }
    const Assembly planned(tiny_recipe(wide, drives), plugins());
    --room.host;
    EXPECT_NE(
        said(room, drives)
            .find("the plan needs " + size(room.host + 1 - planned.process_bytes()) +
                  " of its memory and a rank's process " + size(planned.process_bytes()) + " beside it"),
        std::string::npos)
        << said(room, drives);
    room = room_for(wide, here);
    EXPECT_EQ(said(room, here), "nothing is refused");
    --room.device;
    EXPECT_NE(said(room, here).find("the plan needs " + size(room.device + 1) + ", "), std::string::npos)
        << said(room, here);
  }
}

// ---------------------------------------------------------------- faults

// One whose drives have them.
PluginHost& faulty_plugins() {
  static PluginHost host = [] {
    std::vector<SearchPlace> places = plugins().places();
    places.insert(places.begin(), {places.back().folder / "faulty", "faults"});
    return PluginHost(places);
  }();
  return host;
}

class TransientFault : public testing::TestWithParam<const char*> {};

TEST_P(TransientFault, ChangesNoBit) {
  const std::vector<std::string> sets = {"precision.compute=bf16", "tier.nvme.every=5"};
  const auto recipe = [&](const std::string& fault) {
    return tiny_recipe(with(sets, {"tier.nvme.faults=" + fault}), offloaded_to_drives("/tmp"),
                       faulty_plugins());
  };
  static const Results expected = run_ranks(tiny_recipe({"precision.compute=bf16"}), 10);
  EXPECT_EQ(results_of(recipe(GetParam()), faulty_plugins(), 10), expected);
}

INSTANTIATE_TEST_SUITE_P(Faults, TransientFault,
                         testing::Values("eio", "enospc", "eintr", "eagain", "short", "late", "reordered",
                                         "full"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Drives, AFolderThatDisappearsUnderARunChangesNoBit) {
  const TempFolder folder;
  const std::string drive = folder / "drive";
  std::filesystem::create_directory(drive);
  std::vector<double> parameters;
  run_local_ranks(tiny_recipe({}, offloaded_to_drives(drive)), plugins().places(), [&](Trainer& trainer) {
    train_steps(trainer, 5);
    std::filesystem::remove_all(drive);
    train_steps(trainer, 5);
    parameters = parameters_of(trainer);
  });
  const std::vector<double> expected = run_ranks(tiny_recipe(), 10).front();
  EXPECT_EQ(parameters, std::vector<double>(expected.begin() + 10, expected.end()));
}

// Of the binary, whose files may not be as large.
TEST(Drives, TooLittleRoomForFilesIsFoundBeforeTheFirstStep) {
  const TempFolder folder;
  const std::string file = folder.write(
      "recipe.toml",
      tiny_recipe({"run.out=" + (folder / "run")}, offloaded_to_drives(folder.path())).resolved_toml());
  const Result result = shell("ulimit -f 64; $PRUN " + file);
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_NE(result.out.find("are allowed here; raise the limit on the size of files (ulimit -f)"),
            std::string::npos)
      << result.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "run/latest")) << "a checkpoint";
}

class LastingFault : public testing::TestWithParam<std::pair<const char*, const char*>> {};

std::filesystem::file_time_type last_change_in(const std::string& folder) {
  auto last = std::filesystem::file_time_type::min();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().string().find("step-") != std::string::npos)
      last = std::max(last, std::filesystem::last_write_time(entry.path()));
  return last;
}

// Of the binary: from the step in which it begins to the end, in the time that a user waits.
TEST_P(LastingFault, EndsTheRunWithASentenceAndLeavesTheLastCheckpoint) {
  const auto& [fault, sentence] = GetParam();
  const TempFolder folder;
  const std::string limit = fault == std::string("late!") ? "2" : "240";  // a drive may have others to serve
  const Recipe recipe = tiny_recipe(
      {"run.out=" + (folder / "run"), "run.save_every=2", "run.steps=100000",
       std::string("tier.nvme.faults=") + fault, "tier.nvme.every=4000", "tier.nvme.limit=" + limit},
      offloaded_to_drives(folder.path()), faulty_plugins());
  const std::string plugins_folder = (plugins().places().back().folder / "faulty").string();
  const std::string file = folder.write("recipe.toml", recipe.resolved_toml());
  const Result result = prun({file, "--plugin-path", plugins_folder});
  const auto end = std::filesystem::file_time_type::clock::now();
  EXPECT_EQ(result.code, 13) << result.out;
  EXPECT_NE(result.out.find("tier nvme: " + folder.path() + ": "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(sentence), std::string::npos) << result.out;
  // A step takes milliseconds, and every other one is saved.
  EXPECT_LT(end - last_change_in(folder / "run"), std::chrono::minutes(1)) << result.out;
  const Result verified = prun({"ckpt", "verify", folder / "run"});
  EXPECT_EQ(verified.code, 0) << verified.out;
}

INSTANTIATE_TEST_SUITE_P(Faults, LastingFault,
                         testing::Values(std::pair("eio!", "Input/output error (errno 5), tried 4 times"),
                                         std::pair("enospc!",
                                                   "No space left on device (errno 28), tried 4 times"),
                                         std::pair("late!", "it has not ended within 2 s")),
                         [](const auto& tested) {
                           const std::string name = tested.param.first;
                           return name.substr(0, name.size() - 1);
                         });

}  // namespace
}  // namespace prun::test::training_test
