// What a page says of a plan follows from the plan.
#include "report/plan_page.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "inspect/plan_figures.hpp"
#include "plan/pipeline/timing.hpp"
#include "report/run_page.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

constexpr const char* pipeline = "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n";

Assembly assembled(const std::string& more) {
  return Assembly(tiny_recipe({"batch.micro=1"}, more), plugins());
}

Forecast unpriced() { return {std::nullopt, "no cost table", {}}; }

TEST(MemoryUse, StaysWithinThePlanAndEndsWithNothingKept) {
  for (const char* more : {"", pipeline}) {
    const Assembly assembly = assembled(more);
    for (std::int64_t rank = 0; rank < assembly.mesh().world(); ++rank) {
      const MemoryUse use = memory_use(assembly, rank);
      ASSERT_FALSE(use.moments.empty());
      for (std::size_t i = 0; i < use.moments.size(); ++i) {
        EXPECT_LE(use.at(i), use.at(use.peak));
        EXPECT_GE(use.moments[i].saved, 0);
      }
      EXPECT_LE(use.at(use.peak), assembly.plan_of(rank).layout.memory.total());
      EXPECT_GT(use.moments[use.peak].saved, 0);
      EXPECT_EQ(use.moments.back().saved, 0) << use.moments.back().call;
      EXPECT_FALSE(use.tensors.empty());
      EXPECT_TRUE(std::is_sorted(use.tensors.begin(), use.tensors.end(),
                                 [](const PeakTensor& a, const PeakTensor& b) { return a.bytes > b.bytes; }));
    }
  }
}

// What ranks keep in parts is no optimizer state, wherever it lies.
TEST(Purposes, PartsAreToldByWhatTheyAre) {
  for (const int stage : {1, 2, 3}) {
    const Assembly assembly(
        tiny_recipe({"batch.micro=1"}, data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = " +
                                           std::to_string(stage) + "\n"),
        plugins());
    const Plan& plan = assembly.plan();
    std::map<std::string, std::int64_t> bytes;
    std::int64_t all = 0;
    for (const PurposeBytes& purpose : bytes_by_purpose(assembly.program(), plan))
      all += bytes[purpose.name] = purpose.all();
    EXPECT_EQ(all, plan.layout.memory.total());
    EXPECT_EQ(bytes.contains("parts of gradients"), stage >= 2);
    EXPECT_EQ(bytes.contains("parts of parameters"), stage == 3);
    if (stage < 2) continue;
    // Two moments of fp32, as large each as the sums.
    EXPECT_EQ(bytes.at("optimizer state"), 2 * bytes.at("parts of gradients"));
    EXPECT_EQ(bytes["parts of parameters"], stage == 3 ? bytes.at("parts of gradients") : 0);
  }
}

TEST(TrafficMatrix, HasWhatRanksSend) {
  const Assembly assembly(tiny_recipe({"batch.micro=1"}, data_parallel(2)), plugins());
  const TrafficMatrix matrix = traffic_matrix(assembly, plugins(), 16);
  ASSERT_EQ(matrix.bytes.size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    double sent = 0;
    for (const Link& link : matrix.links)
      if (link.rank == static_cast<std::int64_t>(rank)) sent += link.bytes;
    EXPECT_GT(sent, 0);
    EXPECT_DOUBLE_EQ(std::accumulate(matrix.bytes[rank].begin(), matrix.bytes[rank].end(), 0.0), sent);
    EXPECT_EQ(matrix.bytes[rank][rank], 0);
  }
  EXPECT_EQ(traffic_matrix(assembly, plugins(), 1).bytes.size(), 1u);
}

TEST(Timeline, IdlesAsTheScheduleDoes) {
  const Assembly assembly = assembled(pipeline);
  const Timeline timeline = timeline_of(assembly, unpriced(), 24, 2500);
  ASSERT_EQ(timeline.rows.size(), 2u);
  EXPECT_EQ(timeline.unit, "passes");
  double idle = 0;
  for (const TimelineRow& row : timeline.rows) idle += row.idle / 2;
  EXPECT_NEAR(idle, bubble_of(assembly.pipeline()->order), 1e-9);
  EXPECT_GT(idle, 0);
  EXPECT_TRUE(timeline_of(assembled(""), unpriced(), 24, 2500).rows.empty());
}

class OneMillisecond final : public CostModel {
 public:
  double kernel(const Program&, const PlannedStep&) override { return 1e-3; }
  double exchange(const PlannedExchange&, std::int64_t, std::string_view) override { return 1e-3; }
};

TEST(Timeline, OfASimulationIsOneStepAndNoMore) {
  const Assembly assembly = assembled(pipeline);
  OneMillisecond cost_model;
  Forecast forecast = unpriced();
  forecast.prediction.emplace();
  forecast.prediction->simulation =
      simulate(all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
               cost_model);
  const Timeline timeline = timeline_of(assembly, forecast, 24, 2500);
  EXPECT_DOUBLE_EQ(timeline.end, forecast.prediction->simulation.step_seconds * 1e3);
  ASSERT_GT(timeline.rows.size(), 3u);
  EXPECT_EQ(timeline.rows[0].label, "rank 0 compute");
  bool exchanges = false;
  for (const TimelineRow& row : timeline.rows) {
    const bool exchange = row.bars.front().kind == TimelineBar::Kind::exchange;
    EXPECT_LE(exchanges, exchange) << "what computes comes first";
    exchanges = exchange;
    double busy = 0;
    for (const TimelineBar& bar : row.bars) {
      EXPECT_GE(bar.begin, -1e-9);
      EXPECT_LE(bar.end, timeline.end + 1e-9);
      busy += bar.end - bar.begin;
    }
    EXPECT_NEAR(row.idle, 1 - busy / timeline.end, 1e-9) << row.label;
  }
  EXPECT_TRUE(exchanges);
  EXPECT_NE(timeline_of(assembly, forecast, 2, 2500).said.find("more queues are not drawn"),
            std::string::npos);
}

TEST(RecipePage, SaysWhatThePlanSays) {
  const Assembly assembly = assembled(pipeline);
  const std::string page = recipe_page(assembly, plugins(), unpriced());
  for (const char* said : {"<h1>tiny</h1>", "stage rank 1", "bytes from rank (row) to rank (column)",
                           "No predicted times: no cost table", "has most in use in the call", "[model]"})
    EXPECT_NE(page.find(said), std::string::npos) << said;
}

}  // namespace
}  // namespace prun::test
