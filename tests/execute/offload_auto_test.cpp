// Strategy offload: what the planner chooses where it is left to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "inspect/report.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/agreement.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::offload_auto_test {
namespace {

constexpr int steps = 20;

const std::vector<std::string> one_microbatch = {"device.plugin=cpu-async", "precision.compute=bf16",
                                                 "model.layers=6", "batch.global=2", "batch.micro=2"};

// In the order in which they are tried.
std::vector<std::string> ways() {
  std::vector<std::string> all = {""};
  for (const bool parameters : {false, true})
    for (const bool activations : {false, true})
      for (const bool gradients : {false, true}) all.push_back(offloaded(parameters, gradients, activations));
  return all;
}

std::vector<std::string> within(std::int64_t bytes, const std::vector<std::string>& sets) {
  return with(sets, {"device.memory=" + std::to_string(bytes) + "B"});
}

std::int64_t device_bytes(const std::vector<std::string>& sets, const std::string& more) {
  const Assembly assembly(tiny_recipe(sets, more), plugins());
  return assembly.bytes_in_memory_of(0, assembly.plan());
}

// The first way that fits, whatever is left to spare by later ones; it is the plan of those settings.
TEST(OffloadAuto, TheFirstWayThatFitsIsChosen) {
  std::vector<std::int64_t> bytes;
  for (const std::string& way : ways()) bytes.push_back(device_bytes(one_microbatch, way));
  EXPECT_LT(*std::min_element(bytes.begin(), bytes.end()), bytes.front() / 2);
  for (const std::int64_t budget : bytes) {
    const auto first = static_cast<std::size_t>(
        std::find_if(bytes.begin(), bytes.end(), [&](std::int64_t one) { return one <= budget; }) -
        bytes.begin());
    const Assembly chosen(tiny_recipe(within(budget, one_microbatch), automatic_offload), plugins());
    EXPECT_EQ(chosen.fingerprint(),
              Assembly(tiny_recipe(one_microbatch, ways()[first]), plugins()).fingerprint())
        << first;
  }
}

TEST(OffloadAuto, ThePlanSaysWhatWasChosen) {
  const auto said = [](std::int64_t budget, const std::string& more) {
    const Assembly assembly(tiny_recipe(within(budget, one_microbatch), more), plugins());
    const std::string text = plan_text(assembly, forecast(assembly, plugins(), {}));
    const std::size_t at = text.find("to fit      ");
    return at == std::string::npos ? "" : text.substr(at + 12, text.find('\n', at) - at - 12);
  };
  const std::int64_t all = device_bytes(one_microbatch, "");
  EXPECT_EQ(said(all, automatic_offload), "offload: all lies on the device");
  EXPECT_EQ(said(device_bytes(one_microbatch, offloaded()), automatic_offload),
            "offload: optimizer state lies in the host's memory");
  EXPECT_EQ(said(device_bytes(one_microbatch, offloaded(false, true)), automatic_offload),
            "offload: optimizer state and gradients lie in the host's memory");
  EXPECT_EQ(said(all, ""), "");
  EXPECT_EQ(said(all, offloaded()), "offload: optimizer state lies in the host's memory");
  EXPECT_EQ(said(all, offloaded() + by_layer), "");
}

// What is said stays so, and only the rest is chosen.
TEST(OffloadAuto, SomeMayBeLeftToThePlannerAndOthersSaid) {
  const std::string gradients = offloaded() + "gradients = 'auto'\n";
  const auto plan_of = [](std::int64_t budget, const std::string& more) {
    return Assembly(tiny_recipe(within(budget, one_microbatch), more), plugins()).fingerprint();
  };
  const std::int64_t all = device_bytes(one_microbatch, ""),
                     without = device_bytes(one_microbatch, offloaded(false, true));
  EXPECT_EQ(plan_of(all, gradients), plan_of(all, offloaded()));
  EXPECT_EQ(plan_of(without, gradients), plan_of(all, offloaded(false, true)));
}

TEST(OffloadAuto, StateThatLiesOnDrivesMayHaveGradientsOnTheHost) {
  const std::string gradients =
      offloaded(false, false, false, "nvme") + "gradients = 'auto'\n[tier.nvme]\npaths = ['/tmp']\n";
  const std::int64_t budget = device_bytes(one_microbatch, offloaded_to_drives("/tmp", false, true));
  ASSERT_LT(budget, device_bytes(one_microbatch, offloaded_to_drives("/tmp")));
  const Assembly chosen(tiny_recipe(within(budget, one_microbatch), gradients), plugins());
  EXPECT_EQ(
      chosen.program().requests().said_to_fit,
      std::vector<std::string>{"offload: gradients lie in the host's memory; optimizer state lies on nvme"});
}

// The state of one rank fits into the host's memory, that of two does not: it goes on to drives. Without any,
// the first way that fits each stays.
TEST(OffloadAuto, WhatAllRanksOfAHostNeedDecides) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async", "comm.default=meet-async",
                                         "model.layers=24",         "model.hidden=512",
                                         "batch.global=4",          "batch.micro=2"};
  const std::string drives = "[tier.nvme]\npaths = ['/tmp']\n";
  const std::int64_t budget = std::max(device_bytes(sets, data_parallel(2) + offloaded()),
                                       device_bytes(sets, data_parallel(2) + offloaded_to_drives("/tmp")));
  ASSERT_LT(budget, device_bytes(sets, ""));
  const auto said = [&](const std::string& gib, const std::string& layout, const std::string& more) {
    const Assembly chosen(tiny_recipe(with(within(budget, sets), {"tier.cpu.host_gib=" + gib}),
                                      layout + offloaded(false, false, false, "auto") + more),
                          plugins());
    return chosen.program().requests().said_to_fit;
  };
  const std::vector<std::string> on_host = {"offload: optimizer state lies in the host's memory"};
  EXPECT_EQ(said("1", "", drives), on_host);
  EXPECT_EQ(said("1", data_parallel(2), drives),
            std::vector<std::string>{"offload: optimizer state lies on nvme"});
  EXPECT_EQ(said("2", data_parallel(2), drives), on_host);
  EXPECT_EQ(said("1", data_parallel(2), ""), on_host);
}

// Gradients of microbatches that go side by side cannot leave between them: such ways are passed over.
TEST(OffloadAuto, WhatTheRecipeCannotDoIsPassedOver) {
  const std::vector<std::string> several = with(one_microbatch, {"batch.micro=1", "batch.interleave=2"});
  const std::int64_t budget = device_bytes(several, offloaded(false, false, true));
  ASSERT_LT(budget, device_bytes(several, offloaded()));
  const Assembly chosen(tiny_recipe(within(budget, several), automatic_offload), plugins());
  EXPECT_EQ(chosen.program().requests().said_to_fit,
            std::vector<std::string>{"offload: optimizer state and activations lie in the host's memory"});
}

// Less is computed again before anything leaves.
TEST(OffloadAuto, RecomputationComesFirst) {
  const std::string both = "[[strategy]]\nplugin = 'recompute'\nmode = 'budget'\n" + automatic_offload;
  const std::int64_t budget =
      device_bytes(one_microbatch, "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n");
  ASSERT_LT(budget, device_bytes(one_microbatch, ""));
  const Assembly chosen(tiny_recipe(within(budget, one_microbatch), both), plugins());
  EXPECT_EQ(chosen.program().requests().said_to_fit,
            std::vector<std::string>{"offload: all lies on the device"});
}

TEST(OffloadAuto, TheBitsAreThoseOfTrainingWithout) {
  const std::vector<std::string> sets = {"device.plugin=cpu-async",
                                         "comm.default=meet-async",
                                         "batch.micro=2",
                                         "precision.compute=bf16",
                                         "eval.every=1",
                                         "data.validation=0.2"};
  const std::int64_t budget = device_bytes(sets, data_and_zero + offloaded());
  ASSERT_LT(budget, device_bytes(sets, data_and_zero));
  EXPECT_EQ(run_ranks(tiny_recipe(within(budget, sets), data_and_zero + automatic_offload), steps),
            run_ranks(tiny_recipe(sets, data_and_zero), steps));
}

// What each of two ranks says of the other.
std::vector<std::string> disagreements(const Assembly (&ranks)[2]) {
  std::barrier meeting(2);
  std::vector<std::string> texts(2), said(2);
  const auto agree = [&](std::size_t rank) {
    const Exchange exchange = [&](std::string_view, std::span<const int>, std::string_view mine) {
      texts[rank] = mine;
      meeting.arrive_and_wait();
      std::vector<std::string> all = texts;
      meeting.arrive_and_wait();
      return all;
    };
    try {
      check_agreement(ranks[rank], plugins(), exchange);
    } catch (const Error& error) {
      said[rank] = error.what();
    }
  };
  std::thread other([&] { agree(1); });
  agree(0);
  other.join();
  return said;
}

// Ranks whose devices leave them unequal room.
TEST(OffloadAuto, RanksThatChooseDifferentlyAreRefusedWithBothChoices) {
  const std::vector<std::string> sets = with(one_microbatch, {"comm.default=meet-async", "batch.micro=1"});
  const auto of_rank = [&](std::int64_t rank, const std::string& like) {
    return Assembly(tiny_recipe(within(device_bytes(sets, data_and_zero + like), sets),
                                data_and_zero + automatic_offload),
                    plugins(), rank);
  };
  for (const std::string& text : disagreements({of_rank(0, ""), of_rank(1, offloaded())}))
    EXPECT_EQ(
        text,
        "rank 0 and rank 1 fit their plans into memory in other ways: the choice is offload: all lies on the "
        "device on the one, offload: optimizer state lies in the host's memory on the other; say in the "
        "recipe what lies where");
}

// Hosts whose cost tables differ.
TEST(OffloadAuto, RanksThatSettleItDifferentlyAreRefusedWithBothSettings) {
  const std::vector<std::string> sets = with(one_microbatch, {"comm.default=meet-async", "batch.micro=1"});
  const auto of_rank = [&](std::int64_t rank, const std::string& way) {
    return Assembly(tiny_recipe(sets, data_and_zero + way), plugins(), rank);
  };
  for (const std::string& text : disagreements({of_rank(0, offloaded()), of_rank(1, updated_here)}))
    EXPECT_EQ(text,
              "rank 0 and rank 1 settle `auto` in other ways: strategy.2.update is \"host\" on the one, "
              "\"device\" on the other; say in the recipe which it is");
}

TEST(OffloadAuto, WhatDoesNotFitInAnyWayIsRefusedWithTheBytesThatWouldDo) {
  std::int64_t least = device_bytes(one_microbatch, "");
  for (const std::string& way : ways()) least = std::min(least, device_bytes(one_microbatch, way));
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const auto message = [](const std::vector<std::string>& sets) -> std::string {
    try {
      const Assembly assembly(tiny_recipe(sets, automatic_offload), plugins());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string said = message(within(least - 1, one_microbatch));
  EXPECT_NE(said.find("the plan needs " + size(device_bytes(one_microbatch, "")) + ", " + size(least) +
                      " with all that strategies may change"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("alone has"), std::string::npos) << said;
  // A matrix that is larger than the device.
  const std::vector<std::string> wide = with(one_microbatch, {"model.vocab=4096"});
  EXPECT_NE(message(within(100 << 10, wide)).find("alone has 256.00 KiB"), std::string::npos)
      << message(within(100 << 10, wide));
}

}  // namespace
}  // namespace prun::test::offload_auto_test
