// Rates that stand for what nobody measured: files, prices, links within and between hosts.
#include <gtest/gtest.h>

#include "estimate/costs_file.hpp"
#include "estimate/table_cost_model.hpp"
#include "support/assembly_fixture.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::rates_test {
namespace {

DeviceRates made_up() {
  DeviceRates rates;
  rates.device = "NVIDIA Z9";
  rates.short_name = "z9";
  rates.source = "a data sheet";
  rates.flops_per_second = {{DType::f32, 1e12}, {DType::bf16, 1e13}};
  rates.fp8_flops_per_second = 2e13;
  rates.share_of = {{"experts", 0.5}};
  rates.bytes_per_second = 1e11;
  rates.fixed = 1e-6;
  rates.peak_flops = 2e13;
  rates.host_bytes_per_second = 1e10;
  rates.drive_bytes_per_second = 1e9;
  rates.beside_exchanges = 0.75;
  rates.within = {1e10, 1e-5};
  rates.between = {1e9, 1e-4};
  rates.least = 0.5;
  rates.most = 2;
  return rates;
}

CostTable with_rates() {
  CostTable table;
  table.machine = {"any", 1, "generic"};
  table.rates = {made_up()};
  return table;
}

PlannedExchange exchange_of(CommKind kind, std::int64_t count) {
  PlannedExchange exchange;
  exchange.kind = kind;
  exchange.dtype = DType::f32;
  exchange.count = count;
  return exchange;
}

TEST(Rates, RoundTripAsAFile) {
  const std::string text = to_json(with_rates());
  const CostTable read = parse_costs(text, "costs.json");
  EXPECT_EQ(to_json(read), text);
  ASSERT_EQ(read.rates.size(), 1U);
  EXPECT_EQ(read.rates[0].flops_per_second.at(DType::bf16), 1e13);
  EXPECT_EQ(read.rates[0].between.latency, 1e-4);
  EXPECT_EQ(read.rates_of("cuda: NVIDIA Z9, 80 GiB"), &read.rates[0]);
  EXPECT_EQ(read.rates_of("cuda: NVIDIA Z8"), nullptr);
}

TEST(Rates, AreFoundByTheDriversNameAndByAShortOne) {
  const CostTable table = with_rates();
  for (const char* name :
       {"cuda: NVIDIA Z9, 80 GiB", "cuda: z9, which is not here", "Z9", "Z9-SXM", "nvidia z9"})
    EXPECT_EQ(table.rates_of(name), &table.rates[0]) << name;
  for (const char* name : {"cuda: GZ9", "z90", "z", "", "cuda: no GPU here"})
    EXPECT_EQ(table.rates_of(name), nullptr) << name;
}

// The text with another value behind a name.
std::string with_value(std::string text, const std::string& name, const std::string& value) {
  const std::size_t at = text.find("\"" + name + "\":") + name.size() + 3;
  return text.replace(at, text.find_first_of(",}", at) - at, value);
}

TEST(Rates, DamageIsSaidInASentence) {
  const auto problem = [](const std::string& name, const std::string& value) -> std::string {
    try {
      parse_costs(with_value(to_json(with_rates()), name, value), "costs.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "(no error)";
  };
  EXPECT_NE(problem("most", "0.5").find("'least' is above 1, or 'most' below it"), std::string::npos);
  EXPECT_NE(problem("within", "-1").find("'within' must be a number above 0"), std::string::npos);
  EXPECT_NE(problem("drive_bytes_per_second", "0").find("must be a number above 0"), std::string::npos);
}

// What takes longer decides: numbers or bytes.
TEST(Rates, AKernelIsBoundByNumbersOrBytes) {
  const DeviceRates rates = made_up();
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::f32), 1e-6 + 1e-3);
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::bf16), 1e-6 + 1e-4);
  EXPECT_DOUBLE_EQ(rates.seconds({1, 1e9}, DType::f32), 1e-6 + 1e-2);
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::f64), 1e-6 + 1e-3)
      << "of types that are not said, the slowest";
}

// Rates name one of the 16-bit types: fp16 was priced like fp32.
TEST(Rates, BothTypesOf16BitsTakeTheSameTime) {
  DeviceRates rates = made_up();
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::f16), rates.seconds({1e9, 1}, DType::bf16));
  rates.flops_per_second = {{DType::f32, 1e12}, {DType::f16, 1e13}};
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::bf16), 1e-6 + 1e-4);
  rates.flops_per_second[DType::bf16] = 2e13;
  EXPECT_DOUBLE_EQ(rates.seconds({1e9, 1}, DType::f16), 1e-6 + 1e-4) << "its own rate comes first";
}

TEST(Rates, AloneHaveNothingThatWasMeasured) {
  CostTable table = with_rates();
  table.host_gb_per_second = 3;
  table.overheads["cpu"] = {1, 1};
  table.kernels[{"linear", DType::f32, "cpu"}] = {1, 0, 0};
  table.exact[{"cpu", "linear()"}] = 1;
  table.exchanges[{CommKind::all_reduce, 2}] = {{{8, 1.0}}};
  EXPECT_EQ(to_json(table.rates_alone()), to_json(with_rates()));
}

// As for a GPU that is not here: a table that was measured on this machine's host is not its host's.
TEST(Rates, OfADeviceThatIsNotHereComeWithoutThisMachinesFigures) {
  const Recipe recipe = tiny_recipe();
  CostTable here = with_rates();
  here.machine = this_machine();
  here.host_gb_per_second = 3;
  here.exact[{"cpu", "linear()"}] = 1;
  DeviceInfo device;
  device.name = "cuda: z9, which is not here";
  device.absent = true;
  EXPECT_FALSE(costs_for(here, device, recipe, plugins()).host_gb_per_second);
  CostTable elsewhere = here;
  elsewhere.machine.cpu += " of another kind";
  EXPECT_EQ(costs_for(elsewhere, device, recipe, plugins()).host_gb_per_second, 3) << "measured over there";
  device.absent = false;
  EXPECT_EQ(costs_for(here, device, recipe, plugins()).host_gb_per_second, 3);
  device.absent = true;
  device.name = "cuda: b200, which is not here";
  try {
    costs_for(here, device, recipe, plugins());
    FAIL() << "figures of this machine's host for a GPU that nobody knows";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(error.what()).find("cannot predict times on 'cuda: b200, which is not here'"),
              std::string::npos)
        << error.what();
  }
}

TEST(Rates, DrivesMayTakeNoTime) {
  CostTable table = with_rates();
  table.kernels[{"copy", DType::f32, "nvme"}] = {1, 1, 1};
  table.exact[{"nvme", "copy()"}] = 1;
  const CostTable without = table.without_time_of_drives("nvme");
  EXPECT_EQ(without.kernels.begin()->second.seconds({1, 1}), 0);
  EXPECT_EQ(without.exact.begin()->second, 0);
  EXPECT_GE(without.rates.front().drive_bytes_per_second.value_or(0), 1e18);
}

TEST(Rates, ExchangesGoByLinksOfTheHostOrBetweenHosts) {
  const CostTable table = with_rates();
  TableCostModel cost_model(table, {"cuda: NVIDIA Z9"});
  const PlannedExchange sum = exchange_of(CommKind::all_reduce, 1 << 20);
  const double bytes = 4.0 * (1 << 20);
  EXPECT_DOUBLE_EQ(cost_model.exchange(sum, 2, "dp"), 2e-5 + bytes / 1e10);
  EXPECT_DOUBLE_EQ(cost_model.far_exchange(sum, 2, "dp"), 2e-4 + bytes / 1e9);
  EXPECT_DOUBLE_EQ(cost_model.fixed(sum, 2), 2e-5);
  EXPECT_EQ(cost_model.range(), (std::pair<double, double>(0.5, 2)));
  const CostTable twice = table.with_links(2);
  TableCostModel quicker(twice, {"cuda: NVIDIA Z9"});
  EXPECT_DOUBLE_EQ(quicker.exchange(sum, 2, "dp"), 2e-5 + bytes / 2e10);
}

TEST(Rates, WhereNobodyKnowsWhatGoesBetweenHostsItIsAsOnOne) {
  CostTable table;
  table.exchanges[{CommKind::all_reduce, 2}] = {{{1024, 1e-5}, {1 << 20, 1e-3}}};
  TableCostModel cost_model(table, {"cpu"});
  const PlannedExchange sum = exchange_of(CommKind::all_reduce, 1 << 18);
  EXPECT_DOUBLE_EQ(cost_model.far_exchange(sum, 2, "dp"), cost_model.exchange(sum, 2, "dp"));
  EXPECT_FALSE(cost_model.range());
  const CostTable twice = table.with_links(2);
  TableCostModel quicker(twice, {"cpu"});
  EXPECT_DOUBLE_EQ(quicker.exchange(sum, 2, "dp"), 1e-5 + (1e-3 - 1e-5) / 2);
}

// Curves measured between hosts price only such exchanges. A prediction without them has a note.
TEST(Rates, CurvesBetweenHostsAreNotThoseOfOne) {
  const auto note_of = [](const TableCostModel& cost_model) {
    for (const std::string& note : cost_model.notes())
      if (note.starts_with("exchanges between hosts as on one host")) return true;
    return false;
  };
  const PlannedExchange sum = exchange_of(CommKind::all_reduce, 1024 / 4);
  CostTable table;
  table.exchanges[{CommKind::all_reduce, 2}] = {{{1024, 1e-5}}};
  TableCostModel near(table, {"cpu"});
  EXPECT_DOUBLE_EQ(near.far_exchange(sum, 2, "dp"), 1e-5);
  EXPECT_TRUE(note_of(near));
  table.exchanges[{CommKind::all_reduce, 2, host_exchanges, true}] = {{{1024, 1e-3}}};
  TableCostModel both(table, {"cpu"});
  EXPECT_DOUBLE_EQ(both.far_exchange(sum, 2, "dp"), 1e-3);
  EXPECT_DOUBLE_EQ(both.exchange(sum, 2, "dp"), 1e-5);
  EXPECT_FALSE(note_of(both));
  // A device with rates between hosts has these, whatever links the hosts' memory.
  CostTable rated = with_rates();
  rated.exchanges = table.exchanges;
  TableCostModel gpu(rated, {"cuda: NVIDIA Z9"});
  EXPECT_GT(gpu.far_exchange(sum, 2, "dp"), 1e-4);
  EXPECT_LT(gpu.far_exchange(sum, 2, "dp"), 1e-3);
}

// The same plans: two ranks of one host, or of two.
TEST(Rates, ASimulationKnowsWhichRanksShareAHost) {
  PlanBuilder builder;
  builder.exchange(builder.queue("dp", false, 0), CommKind::all_reduce, 1 << 20);
  const Group both = group({0, 1});
  const std::vector<SimulatedRank> ranks = {builder.rank(0, {both}), builder.rank(1, {both})};
  const CostTable table = with_rates();
  const auto seconds = [&](std::int64_t ranks_of_host) {
    TableCostModel cost_model(table, {"NVIDIA Z9"});
    SimulateOptions options;
    options.ranks_of_host = ranks_of_host;
    return simulate(ranks, cost_model, options).step_seconds;
  };
  EXPECT_GT(seconds(1), 5 * seconds(2));
  EXPECT_DOUBLE_EQ(seconds(2), seconds(0));
}

}  // namespace
}  // namespace prun::test::rates_test
