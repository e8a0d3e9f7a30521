// A rank's plan over two devices: gradients are copied out of the first, the update runs on the second, where
// its state lives, and the parameters come back. The bits are those of the plan over one, whatever the
// devices.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/safetensors.hpp"
#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "inspect/report.hpp"
#include "measure/kernel_bench.hpp"
#include "plan/make/make_plan.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/lowering.hpp"
#include "support/temp_folder.hpp"
#include "train/assemble/assembly.hpp"

namespace prun::test::two_devices_test {
namespace {

struct Pair {
  const char* name;
  std::string offload;
  Target first;
};

std::ostream& operator<<(std::ostream& out, const Pair& pair) { return out << pair.name; }

std::vector<Pair> pairs() {
  const std::vector<std::string> delayed = {"device.delay_us=50", "device.seed=7"};
  return {{"async_and_cpu", offloaded(), on_async(delayed)},
          {"cpu_and_cpu", offloaded(), on_cpu()},
          {"async_and_async", offloaded_to("cpu-async"), on_async(delayed)}};
}

Layout layout_named(const std::string& name) {
  for (const Layout& layout : layouts())
    if (name == layout.name) return layout;
  throw_error(ErrorCode::internal, "no layout ", name);
}

class OnTwoDevices : public testing::TestWithParam<std::tuple<Pair, const char*>> {};

TEST_P(OnTwoDevices, TheBitsAreThoseOfOne) {
  const auto& [pair, name] = GetParam();
  const Layout layout = layout_named(name);
  const auto run = [&](const Target& target, const std::string& more) {
    return run_ranks(tiny_recipe(with(layout.sets, target.sets), layout.text + more), 4);
  };
  EXPECT_EQ(run(pair.first, pair.offload), run(on_cpu(), ""));
}

INSTANTIATE_TEST_SUITE_P(Pairs, OnTwoDevices,
                         testing::Combine(testing::ValuesIn(pairs()),
                                          testing::Values("one", "bf16", "formats", "zero2", "zero3",
                                                          "pipeline")),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param);
                         });

TEST(TwoDevices, AnyMemoryOfTheHostHoldsTheState) {
  const auto run = [](const Target& target, const std::string& more) {
    return run_ranks(tiny_recipe(with(target.sets, {"precision.compute=bf16"}), more), 3);
  };
  const auto expected = run(on_cpu(), "");
  for (const char* space : {"pinned", "host", "device"})
    EXPECT_EQ(run(on_async(), offloaded_to("cpu", space)), expected) << space;
}

TEST(TwoDevices, FencesStandAroundWhatLiesOnEither) {
  const auto run = [](const std::string& more) {
    return run_ranks(tiny_recipe({"device.threads=1", "run.poison=true", "precision.compute=bf16"}, more), 3);
  };
  EXPECT_EQ(run(offloaded()), run(""));
}

// ---------------------------------------------------------------- checkpoints

struct Training {
  Training(const std::vector<std::string>& sets, const std::string& more)
      : assembly(tiny_recipe(with({"precision.compute=bf16"}, sets), more), plugins()),
        trainer(assembly, plugins()) {}
  Assembly assembly;
  Trainer trainer;
};

// The tensors of a checkpoint's file, without its head: that has the recipe and the run.
std::map<std::string, std::string> tensors_of(const std::filesystem::path& checkpoint) {
  const SafetensorsFile file(checkpoint / "rank-00000.safetensors");
  std::map<std::string, std::string> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::span<const std::byte> bytes = file.bytes(entry);
    tensors[entry.name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return tensors;
}

TEST(TwoDevices, CheckpointsAreThoseOfOneAndGoBothWays) {
  const TempFolder folder;
  const auto out = [&](const std::string& name) { return "run.out=" + (folder / name); };
  const std::vector<std::string> async = {"device.plugin=cpu-async"};
  Training plain({out("plain")}, ""), moved(with(async, {out("moved")}), offloaded());
  train_steps(plain.trainer, 2);
  train_steps(moved.trainer, 2);
  const auto expected = tensors_of(plain.trainer.save());
  EXPECT_EQ(tensors_of(moved.trainer.save()), expected);
  EXPECT_GT(expected.size(), 20u);
  const std::vector<double> losses = train_steps(plain.trainer, 2);
  Training back({out("back"), "run.resume=" + (folder / "moved")}, ""),
      there(with(async, {out("there"), "run.resume=" + (folder / "plain")}), offloaded());
  EXPECT_EQ(train_steps(back.trainer, 2), losses);
  EXPECT_EQ(train_steps(there.trainer, 2), losses);
}

// ---------------------------------------------------------------- memory and prices

std::int64_t bytes_in(const Plan& plan, MemoryPlace place, Region region) {
  for (const prun::Layout::Range& range : plan.layout.ranges)
    if (range.place == place) return range.memory.bytes[static_cast<std::size_t>(region)];
  return 0;
}

TEST(TwoDevices, MemoryIsExactByDeviceAndSpace) {
  const Assembly plain(tiny_recipe({"precision.compute=bf16"}), plugins());
  const Assembly two(tiny_recipe({"precision.compute=bf16", "device.plugin=cpu-async"}, offloaded()),
                     plugins());
  const MemoryPlace first{0, Space::device}, second{1, Space::host}, pinned{0, Space::pinned};
  const std::int64_t states = bytes_in(plain.plan(), first, Region::state);
  EXPECT_GE(states, 3 * 4 * plain.parameters());
  EXPECT_EQ(bytes_in(two.plan(), second, Region::state), states);
  EXPECT_EQ(bytes_in(two.plan(), first, Region::state), 0);
  EXPECT_EQ(bytes_in(two.plan(), first, Region::parameter), bytes_in(plain.plan(), first, Region::parameter));
  EXPECT_GT(bytes_in(two.plan(), pinned, Region::update), 0);
  std::int64_t all = 0, end = 0;
  for (const prun::Layout::Range& range : two.plan().layout.ranges) {
    EXPECT_GE(range.begin, end);
    EXPECT_EQ(range.begin % range_alignment, 0);
    end = range.begin + range.bytes();
    all += range.bytes();
  }
  EXPECT_EQ(all, two.plan().layout.memory.total());
  const std::string text = plan_text(two, forecast(two, plugins(), {}));
  for (const char* line :
       {"\n  in device memory ", "\n  in pinned host memory ", "\n  in host memory of device 1 "})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_NE(plan_json(two, forecast(two, plugins(), {})).find("\"device\":1,\"space\":\"host memory\""),
            std::string::npos);
}

// What outlives a step lies where it does whatever else the program does: here, with other functions.
TEST(TwoDevices, WhatLastsLiesFirst) {
  const Assembly one(tiny_recipe({"precision.compute=bf16"}, offloaded()), plugins());
  const Assembly other(tiny_recipe({"precision.compute=bf16", "model.dropout=0.1", "batch.micro=2"},
                                   offloaded() + "[[strategy]]\nplugin = 'recompute'\n"),
                       plugins());
  ASSERT_EQ(one.plan().layout.ranges.size(), other.plan().layout.ranges.size());
  const auto within = [](const Assembly& assembly, Id value, std::int32_t instance) {
    const std::int64_t at = assembly.plan().resolve(instance, assembly.plan().allocation(value));
    return at - assembly.plan().layout.find(at, 1)->begin;
  };
  one.each_parameter([&](Id id, std::int32_t instance) {
    const Value& mine = one.program().value(id);
    other.each_parameter([&](Id theirs, std::int32_t of) {
      if (other.full_name(theirs, of) != one.full_name(id, instance)) return;
      const Value& value = other.program().value(theirs);
      EXPECT_EQ(within(one, id, instance), within(other, theirs, of)) << mine.name;
      EXPECT_EQ(within(one, mine.master, instance), within(other, value.master, of)) << mine.name;
      EXPECT_EQ(within(one, mine.states[1], instance), within(other, value.states[1], of)) << mine.name;
    });
  });
}

// One that has room for less than a call, and does not say so.
TEST(TwoDevices, KernelsAreTimedWhereAQueueDoesNotTakeAllOfACall) {
  const Recipe recipe =
      tiny_recipe({"device.plugin=cpu-async", "device.depth=8", "device.silent=true"}, offloaded());
  EXPECT_GT(time_kernels(recipe, plugins(), 1).size(), 10u);
}

TEST(TwoDevices, KernelsCostWhatTheDeviceThatRunsThemNeeds) {
  const Recipe recipe = tiny_recipe({"device.plugin=cpu-async"}, offloaded());
  std::map<std::string, std::set<std::string>> devices;
  for (const KernelTime& time : time_kernels(recipe, plugins(), 2)) {
    devices[time.op].insert(time.device);
    EXPECT_GT(time.seconds, 0) << time.op;
  }
  const Assembly assembly(recipe, plugins());
  const auto name = [&](std::size_t device) {
    return std::string(assembly.device_infos()[device].name.view());
  };
  EXPECT_EQ(devices.at("adamw"), std::set{name(1)});
  EXPECT_EQ(devices.at("linear"), std::set{name(0)});
  EXPECT_EQ(devices.at("copy"), std::set{name(0)});
  CostTable table;
  for (const char* device : {"first", "second"})
    for (const auto& [op, names] : devices)
      for (const DType type : {DType::f64, DType::f32, DType::i32, DType::i64})
        table.kernels[{op, type, device}].fixed =
            op == "adamw" && device == std::string("second") ? 1.0 : 1e-6;
  const std::vector<SimulatedRank> ranks =
      all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); });
  const auto seconds = [&](const char* second) {
    return predict(ranks, table, {"first", second}, table.machine).simulation.step_seconds;
  };
  EXPECT_GT(seconds("second"), 10);
  EXPECT_LT(seconds("first"), 1);
}

// Other shares of the state go over the link than were measured: their copies are priced by their bytes.
TEST(TwoDevices, CopiesOverALinkCostWhatOthersTook) {
  const auto recipe = [](const char* state) {
    return tiny_recipe({"device.plugin=cpu-async"},
                       "[[strategy]]\nplugin = \"offload\"\noptimizer = \"" + std::string(state) + "\"\n");
  };
  CostTable table;
  bench_recipe(plugins(), recipe("host"), table, [](const std::string&) {});
  const Assembly assembly(recipe("device:50, host:50"), plugins());
  std::vector<std::string> names;
  for (const DeviceInfo& device : assembly.device_infos()) names.emplace_back(device.name.view());
  const auto fit = table.kernels.find({"copy", DType::u16, names.front()});
  ASSERT_NE(fit, table.kernels.end());
  EXPECT_GT(fit->second.seconds({0, 1e6, 0}), fit->second.seconds({0, 1e3, 0}));
  EXPECT_EQ(table.kernels.count({"copy", DType::u16, names.back()}), 0u);
}

// ---------------------------------------------------------------- mutants and refusals

std::string verdict(const Program& program, const Plan& plan) {
  try {
    check_plan(program, plan);
    return "sound";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(TwoDevices, EveryWaitBetweenThemThatIsLeftOutIsFound) {
  const Assembly assembly(tiny_recipe({"precision.compute=bf16"}, offloaded()), plugins());
  Plan plan = assembly.plan();
  ASSERT_EQ(verdict(assembly.program(), plan), "sound");
  const auto device = [&](std::int32_t queue) { return plan.queues[static_cast<std::size_t>(queue)].device; };
  int mutants = 0;
  for (Call& call : plan.calls)
    for (std::size_t w = 0; w < call.waits.size(); ++w) {
      if (device(call.queue) == device(call.waits[w].queue)) continue;
      const std::vector<Wait> whole = call.waits;
      call.waits.erase(call.waits.begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_NE(verdict(assembly.program(), plan), "sound") << "call " << call.position << ", wait " << w;
      call.waits = whole;
      ++mutants;
    }
  EXPECT_GE(mutants, 8);
}

std::string refusal(const std::vector<std::string>& sets, const std::string& more) {
  try {
    const Assembly assembly(tiny_recipe(sets, more), plugins());
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST(TwoDevices, AnOperandOutOfReachIsRefused) {
  const std::string cpu(Assembly(tiny_recipe(), plugins()).device_info().name.view());
  EXPECT_EQ(
      refusal({"device.plugin=cpu-async"}, "[[strategy]]\nplugin = 'update-elsewhere'\ndevice = 'cpu'\n"),
      "segment 'embedding', op 'adamw': operand 'parameter' ('token') lies in device memory of device 0 "
      "('cpu-async'), which device 1 ('" +
          cpu + "') does not reach; place it, or a copy of it, in memory of the device that runs update");
  EXPECT_NE(
      refusal({}, offloaded_to("cpu-async", "host"))
          .find(
              "lies in host memory of device 2 ('cpu-async'), which device 2 ('cpu-async') does not reach;"),
      std::string::npos);
}

// Both have as much; the second one needs more.
TEST(TwoDevices, TheMemoryOfEachIsCheckedBeforeTheStart) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "precision.compute=bf16",
                                         "model.hidden=128", "batch.micro=1"};
  const Assembly fits(tiny_recipe(sets, offloaded_to("cpu-async")), plugins());
  const std::int64_t needed = fits.bytes_in_memory_of(2, fits.plan());
  EXPECT_EQ(needed, bytes_in(fits.plan(), {2, Space::device}, Region::state));
  const std::int64_t kib = (needed + 1023) / 1024;
  ASSERT_LT(fits.bytes_in_memory_of(0, fits.plan()), (kib - 1) * 1024);
  const auto with_kib = [&](std::int64_t number) {
    return refusal(with(sets, {"device.memory_kib=" + std::to_string(number)}), offloaded_to("cpu-async"));
  };
  EXPECT_EQ(with_kib(kib), "nothing is refused");
  EXPECT_EQ(
      with_kib(kib - 1),
      "device 2 ('cpu-async'): the plan needs " + size_text(static_cast<double>(needed)) +
          " of its memory, " + size_text(static_cast<double>((kib - 1) * 1024)) +
          " may be used in all; let the strategy that uses it place less there, or take a smaller model");
}

// The state of each fits into the host's memory, that of all ranks does not.
TEST(TwoDevices, RanksShareTheHostsMemoryWhicheverDeviceUsesIt) {
  const std::vector<std::string> async = {"device.plugin=cpu-async", "comm.default=meet-async",
                                          "precision.compute=bf16",  "batch.global=8",
                                          "batch.micro=1",           "tier.cpu.plan_gib=4"};
  const auto assembly_of = [&](std::int64_t vocab) {
    return Assembly(
        tiny_recipe(with(async, {"model.vocab=" + std::to_string(vocab)}), data_parallel(8) + offloaded()),
        plugins());
  };
  const Assembly small = assembly_of(64);
  EXPECT_NO_THROW(check_fits_one_host(small));
  const std::int64_t bytes_of_row = 32 * 3 * 4;
  const Assembly large = assembly_of(small.device_infos()[1].memory_bytes / 4 / bytes_of_row);
  EXPECT_THROW(check_fits_one_host(large), Error);
}

TEST(TwoDevices, ADiskOperandOfAKernelIsRefused) {
  EXPECT_NE(refusal({}, offloaded_to("cpu", "disk")).find(", which no kernel reaches; place it, or a copy"),
            std::string::npos);
}

// Placed apart from what it lies together with.
TEST(TwoDevices, WhatSegmentsHandOnStaysWhereItIs) {
  const Assembly assembly(tiny_recipe(), plugins());
  Program program = assembly.program();
  const Id block = program.step_segment() + 2;
  program.set_place(program.segment(block).outgoing, {0, Space::pinned});
  const auto device = cpu_device();
  try {
    make_plan(program, lowering_on(*device), 1);
    FAIL() << "planned";
  } catch (const Error& error) {
    const std::string why = error.what();
    EXPECT_NE(why.find("in pinned host memory of device 0: all boundaries are in device memory of device 0; "
                       "place a copy of it"),
              std::string::npos)
        << why;
  }
}

TEST(TwoDevices, APluginThatIsNoDeviceIsRefused) {
  EXPECT_NE(refusal({}, offloaded_to("no-such")).find("no-such"), std::string::npos);
}

}  // namespace
}  // namespace prun::test::two_devices_test
