// What `auto` stands for, on a machine that has two units of the preferred device, or seems to.
#include "train/assemble/plugin_host.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/machine.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::automatic_test {
namespace {

namespace fs = std::filesystem;

// The plugins of the build, behind those of a folder of the tests.
class Machine {
 public:
  explicit Machine(const std::string& folder) : plugins_(places(folder)) {}

  PluginHost& plugins() { return plugins_; }
  DeviceChoice choose(int ranks, LocalPlace place, std::vector<std::string> sets = {}) {
    const std::vector<std::string> open = {"device.plugin=auto", "batch.micro=1"};
    sets.insert(sets.begin(), open.begin(), open.end());
    return choose_device(tiny_recipe(sets, ranks > 1 ? data_parallel(ranks) : "", plugins_), plugins_, place);
  }

 private:
  static std::vector<SearchPlace> places(const std::string& folder) {
    std::vector<SearchPlace> all = prun::test::plugins().places();
    all.insert(all.begin(), {all.front().folder / "test" / folder, "the machine"});
    return all;
  }

  PluginHost plugins_;
};

std::string device_of(const DeviceChoice& choice) { return choice.recipe.section("device").plugin(); }

TEST(Auto, TakesTheDeviceThatHasAUnitForEachRank) {
  Machine machine("auto");
  const DeviceChoice one = machine.choose(1, {0, 1}), two = machine.choose(2, {0, 2});
  EXPECT_EQ(device_of(one), "cuda");
  EXPECT_EQ(one.said, "device cuda");
  EXPECT_EQ(device_of(two), "cuda");
  EXPECT_EQ(two.said, "device cuda and comm nccl");
  // Of a rank on one of several hosts.
  EXPECT_EQ(device_of(machine.choose(4, {1, 2})), "cuda");
}

TEST(Auto, WhatItTakesTrainsLikeTheCpu) {
  Machine machine("auto");
  const auto train = [&](const Recipe& recipe) {
    std::vector<double> losses;
    run_local_ranks(recipe, machine.plugins().places(), [&](Trainer& trainer) {
      std::vector<double> own = train_steps(trainer, 3);
      if (trainer.assembly().rank() == 0) losses = std::move(own);
    });
    return losses;
  };
  const Recipe chosen = machine.choose(2, {0, 2}).recipe;
  EXPECT_EQ(train(chosen), train(chosen.with("device.plugin", "cpu").with("comm.default", "meet")));
}

TEST(Auto, TakesTheCpuAndSaysWhy) {
  Machine machine("auto");
  const DeviceChoice many = machine.choose(3, {0, 3}, {"batch.global=6"});
  EXPECT_EQ(device_of(many), "cpu");
  EXPECT_EQ(many.said.find("device cpu and comm ucx; device cuda: "), 0u) << many.said;
  EXPECT_NE(many.said.find("rank 0 of 3 on this host, which has 2 units"), std::string::npos) << many.said;
  EXPECT_EQ(machine.choose(1, {0, 1}, {"device.threads=1"}).said,
            "device cpu; device cuda: it has no option 'threads'");
}

// A rank that sees one may have been shown it alone, by a launcher that does so; ours does not.
TEST(Auto, OneUnitIsNotForTwoRanksThatSeeTheSame) {
  if (!is_built("comm", "nccl")) GTEST_SKIP() << "there is no comm plugin 'nccl'";
  Machine machine("one-unit");
  EXPECT_EQ(machine.choose(2, {0, 2}).said, "device cpu and comm ucx; device cuda: 1 here for 2 ranks");
  EXPECT_EQ(device_of(machine.choose(2, {0, 2, false})), "cuda");
  EXPECT_EQ(device_of(machine.choose(1, {0, 1})), "cuda");
}

// It is there, and says that any number of ranks may have it.
TEST(Auto, WhatRanksShareIsForAnyNumberOfThem) {
  Machine machine("auto");
  const DeviceChoice many = machine.choose(3, {0, 3}, {"batch.global=6", "device.units=0"});
  EXPECT_EQ(many.said, "device cuda and comm nccl");
}

// One that wants a unit for each rank, as NCCL does, is not for ranks that share them.
TEST(Auto, CommOfRanksThatShareUnitsIsThatWhichRunsEverywhere) {
  Machine machine("auto");
  const DeviceChoice shared = machine.choose(3, {0, 3}, {"batch.global=6", "device.share=true"});
  EXPECT_EQ(shared.said, "device cuda and comm ucx");
  EXPECT_EQ(machine.choose(2, {0, 2}, {"device.share=false"}).said, "device cuda and comm nccl");
  EXPECT_EQ(machine.choose(2, {0, 2}, {"device.share=true", "comm.dp=nccl"}).said,
            "device cuda and comm nccl");
  EXPECT_EQ(comm_of_axis(tiny_recipe({"device.plugin=cuda", "device.share=true"}, "", machine.plugins()),
                         machine.plugins(), "dp"),
            "ucx");
}

TEST(Auto, MoreRanksThanUnitsAreRefusedBeforeTheyStart) {
  const Assembly assembly(
      tiny_recipe({"device.plugin=cpu-async", "device.units=1", "batch.micro=1"}, data_parallel(2)),
      plugins());
  try {
    check_fits_one_host(assembly);
    FAIL() << "two ranks and one unit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what())
                  .find("each of the 2 ranks takes a unit of device 'cpu-async', and this machine has 1;"),
              std::string::npos)
        << error.what();
  }
}

TEST(Auto, WithoutItsDriverADeviceIsNotLookedAt) {
  Machine machine("no-driver");
  EXPECT_EQ(machine.choose(1, {0, 1}).said, "device cpu; device cuda: there is no libprun-nowhere.so.1 here");
}

// It says which comm plugin goes with it: the core knows no device by its name.
TEST(Auto, TakesAThirdPartysDeviceToo) {
  Machine machine("third-party");
  EXPECT_EQ(machine.choose(2, {0, 2}).said, "device abacus and comm meet-async");
  EXPECT_EQ(
      comm_of_axis(tiny_recipe({"device.plugin=abacus"}, "", machine.plugins()), machine.plugins(), "dp"),
      "meet-async");
  EXPECT_EQ(comm_of_axis(tiny_recipe({"device.plugin=cpu-async"}), plugins(), "dp"), "ucx") << "it says none";
}

// The option of one of them decides, where only that one has it.
TEST(Auto, AnOptionOfTheDeviceStays) {
  Machine machine("auto");
  const DeviceChoice choice = machine.choose(1, {0, 1}, {"device.depth=8"});
  EXPECT_EQ(device_of(choice), "cuda");
  EXPECT_EQ(choice.recipe.integer("device.depth"), 8);
}

TEST(Auto, LeavesARecipeAloneThatNamesItsDevice) {
  const DeviceChoice choice = choose_device(tiny_recipe({"device.threads=1"}), plugins(), {0, 1});
  EXPECT_EQ(device_of(choice), "cpu");
  EXPECT_EQ(choice.said, "");
}

TEST(Auto, CommFollowsTheDeviceUnlessTheRecipeNamesIt) {
  Machine machine("auto");
  const DeviceChoice choice = machine.choose(2, {0, 2}, {"comm.dp=ucx"});
  EXPECT_EQ(choice.said, "device cuda and comm ucx");
  EXPECT_EQ(comm_of_axis(choice.recipe, machine.plugins(), "tp"), "nccl");
  EXPECT_EQ(comm_of_axis(tiny_recipe({"comm.tp=auto"}), plugins(), "tp"), "ucx");
}

// ---------------------------------------------------------------- the cores of a rank

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

std::int32_t threads_where(LocalPlace place) {
  PluginHost host(plugins().places());
  host.set_local(place);
  DeviceInfo info;
  raise(host.create<DeviceInterface>("device", tiny_recipe({"device.threads=0"}).section("device"))
            ->info(&info));
  return info.threads;
}

// As our launcher deals them out; where ranks outnumber them, each has a thread.
TEST(Cores, APlanCountsThoseOfItsRank) {
  const int all = usable_cores();
  EXPECT_EQ(threads_where({0, 1, true, true}), all);
  EXPECT_EQ(threads_where({0, all, true, true}), 1);
  EXPECT_EQ(threads_where({0, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)) + 1, true, true}), 1);
  EXPECT_EQ(threads_where({0, all}), all) << "a rank that was started has what it was given";
  EXPECT_EQ(usable_cores(), all);
}

// Ranks that are threads read and digest a plugin once; a host still tells what it has loaded itself.
TEST(SharedLibraries, AreLoadedOnceForAllHosts) {
  const auto shared = std::make_shared<SharedLibraries>();
  PluginHost one(plugins().places(), shared), other(plugins().places(), shared), apart(plugins().places());
  const Recipe recipe = tiny_recipe();
  for (PluginHost* host : {&one, &other, &apart})
    host->create<DeviceInterface>("device", recipe.section("device"));
  one.create<ModelInterface>("model", recipe.section("model"));
  EXPECT_EQ(one.loaded().size(), 2u);
  EXPECT_EQ(other.loaded().size(), 1u);
  EXPECT_EQ(one.loaded().at("device/cpu"), other.loaded().at("device/cpu"));
  EXPECT_NE(one.loaded().at("device/cpu"), apart.loaded().at("device/cpu"));
  EXPECT_EQ(one.loaded().at("device/cpu")->sha256(), apart.loaded().at("device/cpu")->sha256());
}

// Where a launcher leaves all of them to each; the thread ends with what it was left.
TEST(Cores, RanksShareWhatTheirLauncherDidNot) {
  const int all = usable_cores();
  if (all < 2 || all < ::sysconf(_SC_NPROCESSORS_ONLN)) GTEST_SKIP() << "cores were dealt out already";
  int first = 0, again = 0;
  std::thread([&] {
    keep_to_share(0, 2);
    first = usable_cores();
    keep_to_share(0, 2);
    again = usable_cores();
  }).join();
  EXPECT_EQ(first, all / 2);
  EXPECT_EQ(again, all / 2);
}

}  // namespace
}  // namespace prun::test::automatic_test
