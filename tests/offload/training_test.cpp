// Optimizer state on drives: the bits are those of training without it, whatever goes wrong once; what goes
// wrong for good ends the run with a sentence, and the last checkpoint stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/binary.hpp"
#include "plan/traffic.hpp"
#include "sim/simulate.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/local_ranks.hpp"

namespace prun::test {
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
  const std::vector<std::string> sets = {"run.poison=true", "run.compare_every=1", "comm.default=meet",
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
  const std::string kinds[] = {"", offloaded(), offloaded_to_drives("/tmp"), drives_alone("/tmp")};
  const std::vector<std::string> sets = {"precision.compute=bf16", "batch.order=vertical"};
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

// ---------------------------------------------------------------- what is under way at the same time

// Seconds: a state's way to memory, all updates of an instance and the way back as long as each other.
class DrivePrices final : public Prices {
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
  DrivePrices prices;
  for (const Call& call : assembly.plan().calls)
    for (const PlannedStep& step : assembly.plan().steps(call))
      if (step.kernel)
        busy[assembly.plan().queues[static_cast<std::size_t>(call.queue)].name] +=
            prices.kernel(assembly.program(), step);
  const Simulation simulation = simulate(
      all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); }), prices, {5});
  const double longest = std::max({busy.at("copy.2.in"), busy.at("copy.2.out"), busy.at("compute.1")});
  EXPECT_GT(busy.at("copy.2.in"), 0.1);
  EXPECT_LT(simulation.step_seconds, longest * 1.4)
      << busy.at("copy.2.in") << " written, " << busy.at("copy.2.out") << " read, " << busy.at("compute.1")
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
  EXPECT_EQ(moved({}), 16) << "an fp32 parameter is its own master copy";
}

// Beside the state's 24 bytes: parameters to forward, to backward but for the last layers, which are there
// still, and to the update and back; fp32 gradients there and back.
TEST(Drives, WhereAllLiesThereItIsMovedOnceAUse) {
  const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", "model.layers=12",
                                       "batch.order=vertical", "run.bundle=0B"},
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

// As many instances' at a time, however many there are, all of memory where everything lies there; what lies
// on drives is no memory.
TEST(Drives, MemoryDoesNotGrowWithWhatLiesThere) {
  const auto bytes = [](const char* layers, const std::string& more) {
    return Assembly(tiny_recipe({"device.plugin=cpu-async", "precision.compute=bf16", layers}, more),
                    plugins())
        .plan()
        .layout;
  };
  const prun::Layout few = bytes("model.layers=4", offloaded_to_drives("/tmp")),
                     many = bytes("model.layers=12", offloaded_to_drives("/tmp")),
                     host = bytes("model.layers=12", offloaded());
  const auto at = static_cast<std::size_t>(Region::update);
  EXPECT_EQ(few.memory.bytes[at], many.memory.bytes[at]);
  EXPECT_LT(many.bytes_in_memory(), host.bytes_in_memory());
  EXPECT_GT(many.memory.total() - many.bytes_in_memory(), 8 * 12 * 12 * 32 * 32);
  const auto of_all = [&](const char* layers) {
    return Assembly(tiny_recipe({"device.plugin=cpu-async", "batch.order=vertical", "run.bundle=0B", layers},
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
           "/no/such: No such file or directory; make that folder");
  contains(refusal({"tier.nvme.stripe_kib=6"}, text), "stripe_kib is 6; it must be a multiple of 4");
  contains(refusal({"device.plugin=nvme", "device.paths=[/tmp]"}, ""),
           "'nvme' keeps bytes and computes nothing; name a device that");
}

// What does not fit is said with what would; a plan of another machine counts on what that has.
TEST(Drives, APlanIsMadeForTheRoomThatThereIs) {
  const std::vector<std::string> large = {"model.layers=600", "model.hidden=2048", "model.heads=16",
                                          "batch.order=vertical"};
  const auto planned_for = [&](const char* gib) {
    return refusal(with(large, {std::string("tier.nvme.plan_gib=") + gib}),
                   "[[strategy]]\nplugin = 'recompute'\n" + drives_alone("/tmp"));
  };
  const std::string refused = planned_for("100");
  EXPECT_NE(refused.find("device 2 ('nvme: /tmp'): the plan needs "), std::string::npos) << refused;
  EXPECT_NE(refused.find("100.00 GiB may be used in all"), std::string::npos) << refused;
  EXPECT_EQ(planned_for("1000"), "nothing is refused");
}

// Of parameters, gradients and state on all ranks' drives together; and what is in memory fits the machine.
TEST(Drives, LargeRecipesFitTheMachinesTheyAreFor) {
  const std::vector<std::string> devices = plugins().catalog().names("device");
  if (std::find(devices.begin(), devices.end(), "cuda") == devices.end())
    GTEST_SKIP() << "built without CUDA";
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
  const Recipe recipe =
      tiny_recipe({"run.out=" + (folder / "run"), "run.save_every=2", "run.steps=100000",
                   std::string("tier.nvme.faults=") + fault, "tier.nvme.every=4000", "tier.nvme.limit=2"},
                  offloaded_to_drives(folder.path()), faulty_plugins());
  const std::string plugins_folder = (plugins().places().back().folder / "faulty").string();
  const std::string file = folder.write("recipe.toml", recipe.resolved_toml());
  const Result result = prun({file, "--plugin-path", plugins_folder});
  const auto end = std::filesystem::file_time_type::clock::now();
  EXPECT_EQ(result.code, 13) << result.out;
  EXPECT_NE(result.out.find("tier nvme: " + folder.path() + ": "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(sentence), std::string::npos) << result.out;
  // A step takes milliseconds, and every other one is saved.
  EXPECT_LT(end - last_change_in(folder / "run"), std::chrono::seconds(5)) << result.out;
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
}  // namespace prun::test
