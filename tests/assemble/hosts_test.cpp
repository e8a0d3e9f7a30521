// Ranks on the cores of several hosts.
#include <gtest/gtest.h>

#include "estimate/forecast.hpp"
#include "inspect/report_sections.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/assemble/assembly.hpp"

namespace prun::test::hosts_test {
namespace {

Assembly of_ranks_on(const std::string& units) {
  return Assembly(
      tiny_recipe({"batch.micro=1", "device.threads=1", "device.plan_units=" + units}, data_parallel(4)),
      plugins());
}

// Exchanges that take a thousand times as long between hosts.
CostTable costs() {
  DeviceRates rates;
  rates.device = "cpu";
  rates.flops_per_second = {{DType::f32, 1e9}};
  rates.bytes_per_second = 1e9;
  CostTable table;
  table.rates = {rates};
  for (const bool far : {false, true})
    for (const CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter})
      table.exchanges[{kind, 4, host_exchanges, far}] = {{{1024, far ? 1.0 : 1e-3}}};
  return table;
}

TEST(Hosts, RanksOnCoresShareOneUnlessTheRecipeSaysHowManyDo) {
  EXPECT_EQ(ranks_of_host(of_ranks_on("0")), 4);
  EXPECT_EQ(ranks_of_host(of_ranks_on("2")), 2);
  EXPECT_EQ(ranks_of_host(of_ranks_on("8")), 4);
  EXPECT_EQ(assumed_text(of_ranks_on("0")), "");
  EXPECT_EQ(assumed_text(of_ranks_on("2")), "assumed     2 ranks on a host, as device.plan_units says\n");
  EXPECT_EQ(assumed_text(of_ranks_on("1")),
            "assumed     a host of its own for each rank, as device.plan_units says\n");
}

// A cluster's drives are not this machine's folders, and a plan for this machine needs its own.
TEST(Hosts, DrivesOfAnotherMachineNeedNotBeHere) {
  const auto planned = [](const std::string& absent, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets = {"device.plugin=cpu-async", "device.absent=" + absent};
    sets.insert(sets.end(), more.begin(), more.end());
    return assumed_text(Assembly(tiny_recipe(sets, offloaded_to_drives("/no/such/drive")), plugins()));
  };
  EXPECT_NE(
      planned("true").find("any amount of room on device 2 for a rank: tier.nvme.plan_gib says how much"),
      std::string::npos)
      << planned("true");
  EXPECT_NE(planned("true", {"tier.nvme.plan_gib=64"})
                .find("64.00 GiB of room on device 2 for a rank, as tier.nvme.plan_gib says"),
            std::string::npos);
  EXPECT_THROW(planned("false"), Error);
}

TEST(Hosts, ExchangesBetweenThemHaveTheirOwnCosts) {
  const auto seconds = [](const std::string& units) {
    return predict_step(of_ranks_on(units), plugins(), costs()).simulation.step_seconds;
  };
  EXPECT_LT(seconds("0"), 1);
  EXPECT_GT(seconds("2"), 1);
  EXPECT_EQ(seconds("2"), seconds("1"));
}

}  // namespace
}  // namespace prun::test::hosts_test
