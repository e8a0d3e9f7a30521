// Cost tables: fitting, looking up, files good and bad.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/random.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/forecast.hpp"
#include "estimate/table_cost_model.hpp"
#include "ops/registry.hpp"
#include "support/assembly_fixture.hpp"
#include "support/plan_builder.hpp"

namespace prun::test::costs_test {
namespace {

const std::string device = "cpu: 2 threads, avx512";

TEST(Fit, RecoversItsConstants) {
  const KernelFit truth{3e-6, 2e-11, 5e-11};
  std::vector<KernelSample> samples;
  for (double flops : {1e4, 1e6, 1e8, 1e10})
    for (double bytes : {1e3, 1e5, 1e7}) samples.push_back({{flops, bytes}, truth.seconds({flops, bytes})});
  const KernelFit fit = fit_kernel(samples);
  EXPECT_NEAR(fit.fixed / truth.fixed, 1, 1e-6);
  EXPECT_NEAR(fit.per_flop / truth.per_flop, 1, 1e-6);
  EXPECT_NEAR(fit.per_byte / truth.per_byte, 1, 1e-6);
}

TEST(Fit, LeavesOutWhatDoesNotMatter) {
  std::vector<KernelSample> moves, tiny = {{{0, 0}, 2e-6}, {{0, 0}, 2e-6}};
  for (double bytes : {1e3, 1e5, 1e7}) moves.push_back({{0, bytes}, 1e-6 + bytes * 1e-10});
  const KernelFit fit = fit_kernel(moves);
  EXPECT_NEAR(fit.fixed, 1e-6, 1e-11);
  EXPECT_EQ(fit.per_flop, 0);
  EXPECT_NEAR(fit.per_byte, 1e-10, 1e-15);
  EXPECT_NEAR(fit_kernel(tiny).fixed, 2e-6, 1e-12);
}

TEST(Fit, IsNeverNegativeAndStandsNoise) {
  const RandomStream draw(7, stream_id("noise"));
  std::uint64_t n = 0;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<KernelSample> samples;
    for (int i = 0; i < 12; ++i) {
      const OpCost cost{std::pow(10.0, 4 + draw.bits32(n++) % 6), std::pow(10.0, 3 + draw.bits32(n++) % 5)};
      const double noise = 0.9 + 0.2 * static_cast<double>(draw.bits32(n++) % 1000) / 1000;
      samples.push_back({cost, noise * KernelFit{1e-6, 1e-11, 0}.seconds(cost)});
    }
    const KernelFit fit = fit_kernel(samples);
    EXPECT_GE(fit.fixed, 0);
    EXPECT_GE(fit.per_flop, 0);
    EXPECT_GE(fit.per_byte, 0);
    for (const KernelSample& sample : samples)
      EXPECT_NEAR(fit.seconds(sample.cost) / sample.seconds, 1, 0.35);
  }
}

TEST(Curve, IsStraightBetweenPointsAndGrowsBeyond) {
  const ExchangeCurve curve{{{1024, 1e-5}, {4096, 2e-5}, {16384, 8e-5}}};
  EXPECT_DOUBLE_EQ(curve.seconds(0), 1e-5);
  EXPECT_DOUBLE_EQ(curve.seconds(1024), 1e-5);
  EXPECT_DOUBLE_EQ(curve.seconds(2560), 1.5e-5);
  EXPECT_DOUBLE_EQ(curve.seconds(10240), 5e-5);
  EXPECT_DOUBLE_EQ(curve.seconds(16384 + 12288), 14e-5);
  const ExchangeCurve point{{{64, 3e-6}}};
  EXPECT_DOUBLE_EQ(point.seconds(1 << 20), 3e-6);
}

CostTable example() {
  CostTable table;
  table.machine = {"A \"good\" CPU", 4, "avx2"};
  table.host_gb_per_second = 123.5;
  table.overheads[device] = {1e-7, 5e-6};
  table.kernels[{"linear", DType::f32, device}] = {1e-6, 1.5e-11, 0};
  table.kernels[{"linear", DType::bf16, device}] = {1e-6, 2.5e-11, 1e-12};
  table.exact[{device, "linear(fp32[8,4], fp32[4,4], -, fp32[8,4])"}] = 1.25e-5;
  table.exchanges[{CommKind::all_reduce, 2}] = {{{1024, 1e-5}, {1 << 20, 1e-3}}};
  table.exchanges[{CommKind::send, 2}] = {{{1024, 2e-5}}};
  table.exchanges[{CommKind::send, 2, host_exchanges, true}] = {{{1024, 2e-3}}};
  table.exact_exchanges[{device, "dp", CommKind::all_reduce, 2, 4096}] = {3e-5, 7e-6};
  return table;
}

TEST(CostFile, RoundTrips) {
  const std::string text = to_json(example());
  const CostTable read = parse_costs(text, "costs.json");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.machine, example().machine);
  EXPECT_EQ(read.host_gb_per_second, 123.5);
  EXPECT_EQ(read.kernels.at({"linear", DType::bf16, device}).per_byte, 1e-12);
  EXPECT_EQ(read.exchanges.at({CommKind::all_reduce, 2}).points.at(1).bytes, 1 << 20);
  EXPECT_EQ(read.exchanges.at({CommKind::send, 2}).points.at(0).seconds, 2e-5);
  EXPECT_EQ(read.exchanges.at({CommKind::send, 2, host_exchanges, true}).points.at(0).seconds, 2e-3)
      << "between hosts";
  EXPECT_EQ(read.exact_exchanges.at({device, "dp", CommKind::all_reduce, 2, 4096}).lateness, 7e-6);
}

// Tables from before it was measured have nothing of it, and what is measured later is added.
TEST(CostFile, WhatTheHostsMemoryCarriesMayBeMissing) {
  CostTable table = example();
  table.host_gb_per_second.reset();
  const CostTable read = parse_costs(to_json(table), "costs.json");
  EXPECT_FALSE(read.host_gb_per_second);
  table.merge(example());
  EXPECT_EQ(table.host_gb_per_second, 123.5);
  table.merge(read);
  EXPECT_EQ(table.host_gb_per_second, 123.5);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string problem(const std::string& text) {
  try {
    parse_costs(text, "costs.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
    return error.what();
  }
  return "(no error)";
}

TEST(CostFile, SaysInOneSentenceWhatIsWrong) {
  const std::string good = to_json(example());
  struct Case {
    const char *from, *to, *says;
  };
  for (const Case& c :
       {Case{"\"prun_costs\":3", "\"prun_costs\":1", "is of version 1, this prun writes version 3"},
        Case{"\"prun_costs\":3", "\"costs\":3", "has no 'prun_costs'"},
        Case{"\"cores\":4", "\"cores\":0", "machine 'cores' must be a whole number from 1 on"},
        Case{"\"cores\":4", "\"cores\":4,\"more\":1", "machine has 'more', which means nothing here"},
        Case{"\"call\":1e-07", "\"call\":-1e-07", "overheads[0] 'call' must be a number from 0"},
        Case{"\"call\":1e-07", "\"call\":1e300", "overheads[0] 'call' must be a number from 0"},
        Case{"\"call\":1e-07", "\"call\":\"fast\"", "overheads[0] 'call' must be a number from 0"},
        Case{"\"type\":\"fp32\"", "\"type\":\"fp8\"", "names a type that there is not: 'fp8'"},
        Case{"\"type\":\"fp32\"", "\"type\":\"bf16\"", "kernels[1] repeats one before it"},
        Case{"\"op\":\"linear\"", "\"op\":\"\"", "kernels[0] 'op' must be a text"},
        Case{"\"kind\":\"send\"", "\"kind\":\"shout\"", "names an exchange that there is not: 'shout'"},
        Case{"[1048576,", "[1024,", "exchanges[0] 'points' must have growing sizes"},
        Case{"[1048576,", "[1048576.5,", "'points' must be pairs of bytes and seconds"},
        Case{"[[1024,2e-05]]", "[]", "exchanges[1] 'points' is empty"},
        Case{"\"members\":2", "\"members\":1", "'members' must be a whole number from 2 on"},
        Case{"_second\":123.5", "_second\":-1", "'host_gb_per_second' must be a number from 0"},
        Case{"_second\":123.5", "_second\":0", "'host_gb_per_second' must be more than 0"},
        Case{"\"exact\":[", "\"exact\":[7,", "exact[0] must be an object"}}) {
    const std::string text = problem(replaced(good, c.from, c.to));
    EXPECT_NE(text.find(c.says), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_EQ(text.rfind("costs.json", 0), 0u) << text;
  }
  EXPECT_NE(problem("").find("costs.json"), std::string::npos);
  EXPECT_NE(problem("[]").find("must be an object"), std::string::npos);
  EXPECT_NE(problem(std::string(100, '[')).find("costs.json"), std::string::npos);
}

TEST(CostModel, ExchangesOfADevicesOwnMemoryComeBeforeTheHosts) {
  CostTable table;
  table.exchanges[{CommKind::all_reduce, 2}] = {{{1024, 1.0}}};
  PlannedExchange exchange;
  exchange.kind = CommKind::all_reduce;
  exchange.count = 1;
  EXPECT_EQ(TableCostModel(table, {device}).exchange(exchange, 2, "dp"), 1.0);
  table.exchanges[{CommKind::all_reduce, 2, device}] = {{{1024, 0.25}}};
  EXPECT_EQ(TableCostModel(table, {device}).exchange(exchange, 2, "dp"), 0.25);
  EXPECT_EQ(TableCostModel(table, {"another"}).exchange(exchange, 2, "dp"), 1.0);
}

// Any cut and any flipped letter: a table or a sentence, never anything else.
TEST(CostFile, DamageIsNoticedOrHarmless) {
  const std::string good = to_json(example());
  const RandomStream draw(3, stream_id("damage"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_NE(problem(good.substr(0, i)), "(no error)") << i;
    std::string flipped = good;
    flipped[i] = static_cast<char>(draw.bits32(i) % 256);
    problem(flipped);
  }
}

TEST(CostFile, AddsToWhatIsThereAndRefusesAnotherMachines) {
  const std::filesystem::path file = temporary_folder() / "deep" / "er" / "costs.json";
  CostTable first = example(), second;
  second.machine = first.machine;
  second.exchanges[{CommKind::all_reduce, 2}] = {{{8, 1.0}}};
  second.exchanges[{CommKind::all_reduce, 4}] = {{{8, 2.0}}};
  EXPECT_FALSE(read_costs(file));
  merge_costs(file, first);
  merge_costs(file, second);
  const CostTable both = *read_costs(file);
  EXPECT_EQ(both.kernels.size(), 2u);
  EXPECT_EQ(both.exchanges.at({CommKind::all_reduce, 2}).points.size(), 1u);
  EXPECT_EQ(both.exchanges.count({CommKind::all_reduce, 4}), 1u);
  CostTable third;
  third.machine = first.machine;
  third.exact_exchanges[{device, "dp", CommKind::all_reduce, 2, 8192}] = {1, 0};
  merge_costs(file, third);
  EXPECT_EQ(read_costs(file)->exact_exchanges.size(), 2u) << "the first recipe's exchanges are gone";
  second.machine.cores = 64;
  try {
    merge_costs(file, second);
    FAIL() << "figures of two machines in one table";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is of another machine (A \"good\" CPU, 4 cores, avx2"),
              std::string::npos)
        << error.what();
  }
}

// ---------------------------------------------------------------- cost model

struct Estimated {
  explicit Estimated(const CostTable& table, const std::vector<std::string>& sets = {})
      : cost_model(table, {device}), assembly(tiny_recipe(sets), plugins()) {}

  // The first step of that op.
  const PlannedStep& step(std::string_view kind) const {
    for (const PlannedFunction& function : assembly.plan().functions)
      for (const PlannedStep& candidate : function.steps)
        if (assembly.program().op(candidate.op).kind() == kind) return candidate;
    throw_error(ErrorCode::internal, "no step of ", kind);
  }
  OpShape shape(std::string_view kind) const {
    return assembly.program().local_shape(assembly.program().op(step(kind).op));
  }

  TableCostModel cost_model;
  Assembly assembly;
};

TEST(CostModel, WhatWasMeasuredComesBeforeTheFormula) {
  CostTable table;
  Estimated estimated(table);
  const auto seconds_of_linear = [&] {
    return estimated.cost_model.kernel(estimated.assembly.program(), estimated.step("linear"));
  };
  try {
    seconds_of_linear();
    FAIL() << "a price from nowhere";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "the cost table has nothing on 'cpu: 2 threads, avx512'; prun bench kernels RECIPE measures it");
  }
  DeviceRates elsewhere;
  elsewhere.device = "NVIDIA H200";
  table.rates = {elsewhere};
  try {
    seconds_of_linear();
    FAIL() << "a price of another device";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what())
                  .find(", but rates of NVIDIA H200: a recipe can be planned for these (docs/tune.md);"),
              std::string_view::npos)
        << error.what();
  }
  table.kernels[{"linear", DType::f32, "cpu: 1 thread, avx512"}] = {1, 0, 0};
  try {
    seconds_of_linear();
    FAIL() << "a price of another number of threads";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "the cost table has nothing on 'cpu: 2 threads, avx512', but on 'cpu: 1 thread, avx512'; prun "
        "bench kernels RECIPE measures it");
  }
  table.kernels.clear();
  table.rates.clear();
  const OpShape shape = estimated.shape("linear");
  table.kernels[{"linear", DType::f32, device}] = {1e-6, 1e-9, 0};
  OpCost cost;
  raise(estimated.assembly.program().op(estimated.step("linear").op).def->cost(&shape, &cost));
  EXPECT_GT(cost.flops, 0);
  EXPECT_DOUBLE_EQ(seconds_of_linear(), 1e-6 + 1e-9 * cost.flops);
  EXPECT_EQ(estimated.cost_model.notes().size(), 1u);
  const OpDef& linear = *estimated.assembly.program().op(estimated.step("linear").op).def;
  table.exact[{device, shape_key(linear, shape)}] = 0.5;
  EXPECT_DOUBLE_EQ(seconds_of_linear(), 0.5);
}

// As a table that was measured on other models: what was not measured is estimated by the median.
TEST(CostModel, AnOpThatWasNotMeasuredIsEstimatedLikeOthers) {
  CostTable table;
  Estimated estimated(table);
  const auto seconds_of_linear = [&] {
    return estimated.cost_model.kernel(estimated.assembly.program(), estimated.step("linear"));
  };
  for (int i = 0; i < 5; ++i) {
    table.kernels[{"bytes" + std::to_string(i), DType::f32, device}] = {1e-6 * i, 0, 1e-9 * i};
    if (i < 3) table.kernels[{"flops" + std::to_string(i), DType::f32, device}] = {0, 1e-10 * (i + 1), 1};
    table.kernels[{"flops" + std::to_string(i), DType::bf16, device}] = {0, 1, 1};
  }
  EXPECT_THROW(seconds_of_linear(), Error) << "three ops with FLOPs are too few";
  TableCostModel enough(table, {device});
  table.kernels[{"flops3", DType::f32, device}] = {0, 4e-10, 1};
  const OpShape shape = estimated.shape("linear");
  OpCost cost;
  raise(estimated.assembly.program().op(estimated.step("linear").op).def->cost(&shape, &cost));
  const double fixed = 0;  // of five with 0 to 4e-6 and four with none
  EXPECT_DOUBLE_EQ(enough.kernel(estimated.assembly.program(), estimated.step("linear")),
                   fixed + 3e-10 * cost.flops + 2e-9 * cost.bytes);
  ASSERT_EQ(enough.notes().size(), 1u);
  EXPECT_EQ(enough.notes().front(),
            "1 kernels of ops that were not measured (linear), like others in the middle; prun bench kernels "
            "RECIPE measures them");
}

// What was measured or is known of products in bf16 says nothing of those in fp8.
TEST(CostModel, ProductsInFp8HaveTheirOwn) {
  CostTable table;
  const Estimated wide(table, {"model.hidden=128", "model.heads=4", "model.ffn=256", "model.seq=128",
                               "strategy.0.plugin=fp8"});
  TableCostModel cost_model = wide.cost_model;
  const auto seconds_of_linear = [&] {
    return cost_model.kernel(wide.assembly.program(), wide.step("linear"));
  };
  const auto refusal = [&]() -> std::string {
    try {
      seconds_of_linear();
    } catch (const Error& error) {
      return error.what();
    }
    return "(no error)";
  };
  table.kernels[{"linear", DType::f32, device}] = {1e-6, 1e-9, 0};
  EXPECT_NE(refusal().find("nothing on op 'linear in fp8' in fp32"), std::string::npos) << refusal();
  const OpShape shape = wide.shape("linear");
  const OpDef& linear = *wide.assembly.program().op(wide.step("linear").op).def;
  const OpCost cost = wide.assembly.program().op(wide.step("linear").op).cost(shape);
  DeviceRates rates;
  rates.device = device;
  rates.source = "a data sheet";
  rates.flops_per_second = {{DType::f32, 1e9}};
  rates.bytes_per_second = 1e12;
  table.rates = {rates};
  EXPECT_NE(refusal().find("nobody knows what products in fp8 take"), std::string::npos) << refusal();
  table.rates.front().fp8_flops_per_second = 2e9;
  const double factors = static_cast<double>(shape.operand[0].bytes() + shape.operand[1].bytes());
  EXPECT_DOUBLE_EQ(seconds_of_linear(), cost.flops / 2e9 + 1.5 * factors / 1e12);
  table.rates.front().share_of = {{"linear", 0.5}};
  EXPECT_DOUBLE_EQ(seconds_of_linear(), cost.flops / 1e9 + 1.5 * factors / 1e12);
  table.kernels[{"linear in fp8", DType::f32, device}] = {0.25, 0, 0};
  EXPECT_DOUBLE_EQ(seconds_of_linear(), 0.25);
  EXPECT_EQ(kernel_name(linear, shape), "linear in fp8");
  const Estimated ends(table, {"model.hidden=128", "model.heads=4", "model.ffn=256", "model.seq=128",
                               "strategy.0.plugin=fp8", "strategy.0.first_in_compute=1"});
  TableCostModel of_half = ends.cost_model;
  EXPECT_DOUBLE_EQ(of_half.kernel(ends.assembly.program(), ends.step("linear")),
                   0.5 * 0.25 + 0.5 * (1e-6 + 1e-9 * cost.flops));
  EXPECT_EQ(kernel_name(linear, ends.shape("linear")), "linear partly in fp8");
}

// Kernels of one shape take other times with a window than without.
TEST(TableCostModel, AttributesThatCameLaterTellShapesApart) {
  const OpRegistry registry;
  const OpDef& attention = registry.find("attention");
  const Dim dims[] = {{"batch", 2}};
  const Attr full[] = {{.i = 1}, {.i = 0}, {.f = 0}, {.f = 0}, {.i = 0}},
             windowed[] = {{.i = 1}, {.i = 512}, {.f = 0}, {.f = 0}, {.i = 0}},
             bounded[] = {{.i = 1}, {.i = 0}, {.f = 30}, {.f = 0}, {.i = 0}};
  OpShape shape;
  shape.count = 1;
  shape.output(0, DType::bf16, dims, 1);
  shape.attrs = full;
  EXPECT_EQ(shape_key(attention, shape), "attention(bf16[2])");
  shape.attrs = windowed;
  EXPECT_EQ(shape_key(attention, shape), "attention(bf16[2]), window=512");
  shape.attrs = bounded;
  EXPECT_EQ(shape_key(attention, shape), "attention(bf16[2]), softcap=30");
}

PlannedExchange all_reduce_of(std::int64_t count) {
  PlannedExchange exchange;
  exchange.kind = CommKind::all_reduce;
  exchange.dtype = DType::f32;
  exchange.count = count;
  return exchange;
}

TEST(CostModel, AnotherGroupSizeIsWorkedOutAndSaid) {
  const CostTable table = example();
  TableCostModel cost_model(table, {device});
  PlannedExchange exchange = all_reduce_of(1 << 18);
  EXPECT_DOUBLE_EQ(cost_model.exchange(exchange, 2, "dp"), 1e-3);
  EXPECT_TRUE(cost_model.notes().empty());
  // Twice the rounds; three quarters of the bytes travel where half did.
  EXPECT_DOUBLE_EQ(cost_model.exchange(exchange, 4, "dp"), 2e-5 + (1e-3 - 1e-5) * 1.5);
  EXPECT_EQ(cost_model.notes(), std::vector<std::string>{"all_reduce among 4 worked out from 2 ranks"});
  exchange.kind = CommKind::all_to_all;
  EXPECT_THROW(cost_model.exchange(exchange, 2, "dp"), Error);
}

TEST(CostModel, TheFixedPartIsThatOfTheSmallestMeasured) {
  const CostTable table = example();
  TableCostModel cost_model(table, {device});
  PlannedExchange exchange = all_reduce_of(1024);
  EXPECT_DOUBLE_EQ(cost_model.fixed(exchange, 2), 1e-5);
  EXPECT_DOUBLE_EQ(cost_model.fixed(exchange, 4), 2e-5);
  EXPECT_DOUBLE_EQ(cost_model.fixed(exchange, 1), 0);
  exchange.kind = CommKind::all_to_all;
  EXPECT_DOUBLE_EQ(cost_model.fixed(exchange, 2), 0);
}

TEST(CostModel, WhatALayoutsOwnExchangesTookComesFirst) {
  const CostTable table = example();
  TableCostModel cost_model(table, {device});
  PlannedExchange exchange = all_reduce_of(1024);
  EXPECT_DOUBLE_EQ(cost_model.exchange(exchange, 2, "dp"), 3e-5);
  EXPECT_DOUBLE_EQ(cost_model.lateness(exchange, 2, "dp"), 7e-6);
  exchange.count = 1025;
  EXPECT_NE(cost_model.exchange(exchange, 2, "dp"), 3e-5);
  EXPECT_DOUBLE_EQ(cost_model.lateness(exchange, 2, "dp"), 0);
}

TEST(CostModel, ATableOfAnotherMachineIsSaid) {
  PlanBuilder builder;
  builder.exchange(builder.queue("dp", false, 0), CommKind::all_reduce, 2048);
  const Group both = group({0, 1});
  const std::vector<SimulatedRank> ranks = {builder.rank(0, {both}), builder.rank(1, {both})};
  const CostTable table = example();
  EXPECT_TRUE(predict(ranks, table, {device}, table.machine).notes.empty());
  const Prediction other = predict(ranks, table, {device}, {"B", 1, "generic"});
  EXPECT_EQ(other.notes,
            std::vector<std::string>{
                "figures of another machine: A \"good\" CPU, 4 cores, avx2; this is B, 1 core, generic"});
}

TEST(ThisMachine, HasANameAndCores) {
  const Machine here = this_machine();
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_GE(here.cores, 1);
  EXPECT_EQ(here, this_machine());
}

TEST(Forecasts, ADamagedTableSpoilsNoPlanUnlessItWasNamed) {
  const Assembly assembly(tiny_recipe(), plugins());
  const std::filesystem::path file = temporary_folder() / "prun" / "costs.json";
  std::filesystem::create_directories(file.parent_path());
  setenv("XDG_CACHE_HOME", temporary_folder().c_str(), 1);
  EXPECT_NE(forecast(assembly, plugins(), {}).missing.find("prun bench kernels"), std::string::npos);
  std::ofstream(file) << "{";
  EXPECT_NE(forecast(assembly, plugins(), {}).missing.find("costs.json"), std::string::npos);
  EXPECT_THROW(forecast(assembly, plugins(), file), Error);
  EXPECT_THROW(forecast(assembly, plugins(), file.string() + ".not"), Error);
}

}  // namespace
}  // namespace prun::test::costs_test
