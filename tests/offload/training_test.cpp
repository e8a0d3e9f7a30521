// Optimizer state on drives: the bits are those of training without it, whatever goes wrong once; what goes
// wrong for good ends the run with a sentence, and the last checkpoint stands.
#include <gtest/gtest.h>

#include <chrono>

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
  const std::string kinds[] = {"", offloaded(), offloaded_to_drives("/tmp")};
  const Results expected = run_ranks(tiny_recipe({"precision.compute=bf16"}), 8);
  const std::vector<double> parameters(expected[0].begin() + 8, expected[0].end());
  for (const std::string& from : kinds)
    for (const std::string& to : kinds) {
      const TempFolder out;
      {
        const Assembly assembly(tiny_recipe({"precision.compute=bf16", "run.out=" + (out / "a")}, from),
                                plugins());
        Trainer trainer(assembly, plugins());
        train_steps(trainer, 4);
        trainer.save();
      }
      const Assembly assembly(
          tiny_recipe({"precision.compute=bf16", "run.out=" + (out / "b"), "run.resume=" + (out / "a")}, to),
          plugins());
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

// As many instances' at a time, however many there are; what lies on drives is no memory.
TEST(Drives, MemoryDoesNotGrowWithTheState) {
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

class LastingFault : public testing::TestWithParam<std::pair<const char*, const char*>> {};

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
  const auto begin = std::chrono::steady_clock::now();
  const Result result = prun({file, "--plugin-path", plugins_folder});
  EXPECT_EQ(result.code, 13) << result.out;
  EXPECT_NE(result.out.find("tier nvme: " + folder.path() + ": "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(sentence), std::string::npos) << result.out;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
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
