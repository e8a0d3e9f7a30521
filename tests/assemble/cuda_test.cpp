// Plans for the device cuda, made where there is no GPU. Skipped where the plugin is not built.
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "inspect/report_sections.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "train/assemble/assembly.hpp"

namespace prun::test::cuda_test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("device", "cuda")) GTEST_SKIP() << "there is no device plugin 'cuda'";
  }

  static double bytes_at(int length, bool deterministic) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cuda", "precision.compute=bf16", "batch.global=1", "batch.micro=1",
                     "model.seq=" + std::to_string(length),
                     std::string("device.deterministic=") + (deterministic ? "true" : "false")}),
        plugins());
    return static_cast<double>(assembly.plan().layout.bytes_in_memory());
  }
};

// Attention whose gradient has the same bits every time may take memory that grows with the square.
TEST_F(Cuda, MemoryGrowsWithTheLengthOfSequences) {
  constexpr int length = 32768;
  EXPECT_LT(bytes_at(2 * length, false), 2.1 * bytes_at(length, false));
  EXPECT_LE(bytes_at(length, false), bytes_at(length, true));
}

// 32,768 rows of 50,304 logits are 3.3 GB: at once two halves, or chunks of less.
TEST_F(Cuda, LogitsMayTakeLessMemory) {
  const auto bytes = [](const char* logits) {
    const Assembly assembly(
        tiny_recipe({"device.plugin=cuda", "precision.compute=bf16", "batch.global=32", "batch.micro=32",
                     "model.seq=1024", "model.vocab=50304", std::string("device.logits=") + logits}),
        plugins());
    return static_cast<double>(assembly.plan().layout.bytes_in_memory());
  };
  constexpr double row = 2 * 50304;
  EXPECT_NEAR(bytes("2GiB") - bytes("512MiB"), (16384 - 4736) * row, 1024 * row);
}

// ---------------------------------------------------------------- of a machine that is not there

constexpr const char* offloaded_by_need =
    "[[strategy]]\nplugin = 'offload'\nmode = 'auto'\n[tier.nvme]\npaths = ['/tmp']\n";

class AnotherMachine : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped()) return;
    DeviceInfo info;
    raise(plugins()
              .create<DeviceInterface>("device", tiny_recipe({"device.plugin=cuda"}).section("device"))
              ->info(&info));
    if (!info.absent) GTEST_SKIP() << "there is a GPU here";
  }

  static std::string gib(const std::string& key, double bytes) {
    return format("%s=%.17g", key.c_str(), bytes / (1 << 30));
  }
  static Recipe recipe(std::vector<std::string> sets, const std::string& more = offloaded_by_need) {
    sets.insert(sets.begin(), {"device.plugin=cuda", "model.layers=6", "model.hidden=512", "batch.global=2",
                               "batch.micro=2"});
    return tiny_recipe(sets, more);
  }
  static std::string refusal(const std::vector<std::string>& sets, const std::string& more) {
    try {
      const Assembly assembly(recipe(sets, more), plugins());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      return error.what();
    }
    return "nothing is refused";
  }
};

// Each has just less than the way before needs.
TEST_F(AnotherMachine, PlansGoWhereItHasRoom) {
  const Assembly roomy(recipe({}), plugins());
  ASSERT_EQ(roomy.program().requests().said_to_fit.at(0), "offload: all lies on the device");
  const double own = static_cast<double>(roomy.process_device_bytes()),
               needed = static_cast<double>(roomy.plan().layout.bytes_in_memory());
  const std::string small = gib("device.plan_gib", own + needed * 0.6);
  const Assembly on_host(recipe({small}), plugins());
  EXPECT_EQ(on_host.program().requests().said_to_fit.at(0),
            "offload: optimizer state lies in the host's memory");
  const double host = static_cast<double>(on_host.bytes_in_memory_of(1, on_host.plan()));
  const std::string less = gib("tier.cpu.plan_gib", static_cast<double>(on_host.process_bytes()) + host / 2);
  const Assembly on_drives(recipe({small, less}), plugins());
  EXPECT_NE(on_drives.program().requests().said_to_fit.at(0).find("on nvme"), std::string::npos)
      << on_drives.program().requests().said_to_fit.at(0);
  EXPECT_NE(refusal({small, less, "tier.nvme.plan_gib=0.001"}, offloaded_by_need).find("may be used"),
            std::string::npos);
}

TEST_F(AnotherMachine, WhatItsHostHasNoRoomForIsRefused) {
  const std::string on_host = "[[strategy]]\nplugin = 'offload'\n";
  EXPECT_EQ(refusal({"tier.cpu.plan_gib=64"}, on_host), "nothing is refused");
  const std::string refused = refusal({"tier.cpu.plan_gib=0.01"}, on_host);
  EXPECT_NE(refused.find("10.24 MiB may be used in all"), std::string::npos) << refused;
  EXPECT_NE(refused.find("; tier.cpu.plan_gib says so"), std::string::npos) << refused;
  EXPECT_NE(refusal({"device.plan_gib=0.7"}, "").find("device.plan_gib says so"), std::string::npos);
}

// With several ranks on a host they share its memory and its cores' work.
TEST_F(AnotherMachine, RanksOfAHostShareItsMemory) {
  const std::string on_host = data_parallel(2) + "[[strategy]]\nplugin = 'offload'\n";
  const std::vector<std::string> two = {"batch.micro=1", "comm.default=ucx"};
  const Assembly each(recipe(two, on_host), plugins());
  EXPECT_EQ(ranks_of_host(each), 1);
  const double one = static_cast<double>(each.bytes_in_memory_of(1, each.plan()) + each.process_bytes());
  const std::vector<std::string> tight = {two[0], two[1], gib("tier.cpu.plan_gib", 1.5 * one)};
  EXPECT_TRUE(hosts_have_room(Assembly(recipe(tight, on_host), plugins())));
  std::vector<std::string> together = tight;
  together.push_back("device.plan_units=8");
  const Assembly both(recipe(together, on_host), plugins());
  EXPECT_EQ(ranks_of_host(both), 2);
  EXPECT_FALSE(hosts_have_room(both));
  EXPECT_EQ(crowded_host_text(each), "");
  EXPECT_NE(crowded_host_text(both).find("the 2 ranks of a host together need "), std::string::npos)
      << crowded_host_text(both);
  const std::optional<HostMemory> host = crowded_host(both);
  ASSERT_TRUE(host);
  EXPECT_DOUBLE_EQ(static_cast<double>(host->needed), 2 * one);
}

TEST_F(AnotherMachine, WhatIsAssumedOfItIsSaid) {
  const Assembly assembly(recipe({"tier.cpu.plan_gib=100"}, "[[strategy]]\nplugin = 'offload'\n"), plugins());
  const std::string text = assumed_text(assembly);
  EXPECT_EQ(
      text.find("assumed     any amount of memory of device 0: device.plan_gib says how much there is\n"), 0u)
      << text;
  EXPECT_NE(text.find("100.00 GiB of memory of device 1, as tier.cpu.plan_gib says\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find(", as on this machine: tier.cpu.threads says how many there are\n"), std::string::npos)
      << text;
  const std::string stated = assumed_text(
      Assembly(recipe({"tier.cpu.threads=96"}, "[[strategy]]\nplugin = 'offload'\n"), plugins()));
  EXPECT_NE(stated.find("device 1 with 96 threads, as tier.cpu.threads says\n"), std::string::npos) << stated;
  JsonWriter json;
  json.begin_object();
  write_assumed(json, assembly);
  const JsonValue written = parse_json(json.end_object().take(), "plan");
  EXPECT_TRUE(written.at("assumed").at("another_machine").as_bool());
  EXPECT_EQ(written.at("assumed").at("memory").as_array().at(1).at("bytes").as_int64(),
            std::int64_t{100} << 30);
  EXPECT_EQ(assumed_text(Assembly(tiny_recipe(), plugins())), "") << "all is as it was found here";
}

}  // namespace
}  // namespace prun::test::cuda_test
