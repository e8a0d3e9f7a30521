// Traces, and what a recorder sees of real steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "base/json.hpp"
#include "estimate/forecast.hpp"
#include "estimate/trace.hpp"
#include "inspect/recorder.hpp"
#include "measure/comm_bench.hpp"
#include "measure/kernel_bench.hpp"
#include "measure/layout_bench.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/plan_builder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::trace_test {
namespace {

const std::vector<std::string> one_thread = {"device.threads=1", "device.pin=false"};

// Of each thread: one after the other or one within the other.
void expect_nested(const JsonValue& trace) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<double, double>>> threads;
  for (const JsonValue& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    const double begin = event.at("ts").as_double(), end = begin + event.at("dur").as_double();
    EXPECT_GE(begin, 0);
    EXPECT_GE(end, begin);
    threads[{event.at("pid").as_int64(), event.at("tid").as_int64()}].push_back({begin, end});
  }
  EXPECT_FALSE(threads.empty());
  constexpr double rounding = 1e-3;  // microseconds
  for (auto& [thread, events] : threads) {
    std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      return a.first < b.first || (a.first == b.first && a.second > b.second);
    });
    std::vector<double> open;
    for (const auto& [begin, end] : events) {
      while (!open.empty() && open.back() <= begin + rounding) open.pop_back();
      EXPECT_TRUE(open.empty() || end <= open.back() + rounding);
      open.push_back(end);
    }
  }
}

TEST(Trace, OfASimulationParsesAndNests) {
  const Assembly assembly(tiny_recipe({"batch.global=16", "batch.micro=4"}, data_parallel(2)), plugins());
  FixedCostModel cost_model;
  const Simulation simulation = simulate(
      all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); }), cost_model);
  const std::vector<RankTrace> traces = {
      trace_of(assembly.program(), assembly.plan(), 0, simulation.ranks.at(0).events)};
  const std::string text = trace_json(traces);
  expect_nested(parse_json(text, "trace"));
  for (const char* name : {"\"forward block.1 mb 1\"", "\"update embedding", "\"all_reduce dp.reduce ",
                           "\"wait for dp", "\"rank 0\"", "\"compute\"", "\"dp.reduce\""})
    EXPECT_NE(text.find(name), std::string::npos) << name;
}

TEST(Trace, StartsAtZero) {
  PlanBuilder builder;
  builder.kernel(builder.queue("compute", true), 1);
  const std::vector<Event> events = {{0, 0, -1, 0, 1000.5, 1000.75}};
  const std::vector<RankTrace> traces = {trace_of(builder.program(), builder.plan(), 3, events)};
  EXPECT_NE(trace_json(traces).find("\"pid\":3,\"tid\":0,\"ts\":0,\"dur\":250000,"), std::string::npos)
      << trace_json(traces);
}

// By rank, what its recorder saw.
std::map<std::int64_t, std::vector<Event>> record(const Recipe& recipe, std::int64_t steps,
                                                  std::int64_t kept) {
  std::mutex mutex;
  std::map<std::int64_t, std::unique_ptr<Recorder>> recorders;
  std::map<std::int64_t, std::vector<Event>> events;
  const Probes probes = [&](const Assembly& assembly, const Communicators* communicators) {
    EXPECT_EQ(communicators != nullptr, assembly.mesh().world() > 1);
    const std::scoped_lock lock(mutex);
    recorders[assembly.rank()] = std::make_unique<Recorder>(assembly.plan(), kept);
    return std::vector<Probe*>{recorders[assembly.rank()].get()};
  };
  const auto body = [&](Trainer& trainer) {
    trainer.run(steps, [](const StepResult&) {});
    const std::scoped_lock lock(mutex);
    const Recorder& recorder = *recorders.at(trainer.assembly().rank());
    EXPECT_EQ(recorder.lost() > 0, steps > kept);
    events[trainer.assembly().rank()] = recorder.events();
  };
  run_local_ranks(recipe, plugins().places(), body, probes);
  return events;
}

// Calls and waits by queue, in order, as the plan has them for a step.
std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> planned(const Plan& plan, std::int64_t step) {
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> order(plan.queues.size());
  for (const Call& call : plan.calls) {
    auto& queue = order[static_cast<std::size_t>(call.queue)];
    for (const Wait& wait : call.waits)
      if (step >= wait.steps_ago) queue.push_back({call.position, wait.queue});
    queue.push_back({call.position, -1});
  }
  return order;
}

TEST(Recorder, SeesEveryCallAndWaitInThePlannedOrder) {
  for (int ranks : {1, 2}) {
    const Recipe recipe = tiny_recipe({"batch.global=16", "batch.micro=4", one_thread[0], one_thread[1]},
                                      ranks > 1 ? data_parallel(ranks) : "");
    const Assembly assembly(recipe, plugins());
    const Plan& plan = assembly.plan();
    const auto recorded = record(recipe, 3, 3);
    ASSERT_EQ(recorded.size(), static_cast<std::size_t>(ranks));
    for (const auto& [rank, events] : recorded)
      for (std::int64_t step = 0; step < 3; ++step) {
        std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> seen(plan.queues.size());
        for (const Event& event : events)
          if (event.step == step)
            seen[static_cast<std::size_t>(event.queue)].push_back({event.position, event.waits_for});
        EXPECT_EQ(seen, planned(plan, step)) << "rank " << rank << " of " << ranks << ", step " << step;
      }
  }
}

TEST(Recorder, KeepsTheLastSteps) {
  const auto recorded = record(tiny_recipe(one_thread), 5, 2);
  std::set<std::int64_t> steps;
  for (const Event& event : recorded.at(0)) steps.insert(event.step);
  EXPECT_EQ(steps.count(4), 1u);
  EXPECT_EQ(steps.count(3), 1u);
  EXPECT_EQ(steps.count(1), 0u);
}

TEST(Recorder, ARealStepCanBeTracedAndSummarized) {
  const Recipe recipe = tiny_recipe({"batch.global=8", one_thread[0], one_thread[1]}, data_parallel(2));
  const Assembly assembly(recipe, plugins());
  std::vector<RankTrace> traces;
  for (const auto& [rank, events] : record(recipe, 3, 3)) {
    traces.push_back(trace_of(assembly.program(), assembly.plan(), static_cast<int>(rank), events));
    double begin = INFINITY, end = 0;
    for (const Event& event : events)
      if (event.step == 2) {
        begin = std::min(begin, event.begin);
        end = std::max(end, event.end);
      }
    const StepTimes times = summarize(assembly.plan(), events, 2);
    EXPECT_GT(times.busy[compute_queue], 0);
    EXPECT_GT(times.exposed_communication, 0) << "the last gradients cannot hide";
    EXPECT_LE(times.exposed_communication, times.waiting[compute_queue]);
    for (std::size_t q = 0; q < times.busy.size(); ++q)
      EXPECT_LE(times.busy[q] + times.waiting[q], end - begin + 1e-9);
  }
  expect_nested(parse_json(trace_json(traces), "trace"));
}

// ---------------------------------------------------------------- measuring

TEST(Bench, TimesEveryKernelOfAPlanAndItsPredictionIsNear) {
  const Recipe recipe = tiny_recipe({"model.hidden=64", "model.seq=64", one_thread[0], one_thread[1]});
  const Assembly assembly(recipe, plugins());
  CostTable table;
  table.machine = this_machine();
  const std::string device(assembly.device_info().name.view());
  for (const KernelTime& time : time_kernels(recipe, plugins(), 5)) {
    EXPECT_GT(time.seconds, 0) << time.shape;
    table.exact[{device, time.shape}] = time.seconds;
  }
  const std::vector<SimulatedRank> ranks =
      all_ranks(assembly.program(), [&](int) -> const Plan& { return assembly.plan(); });
  const Prediction prediction = predict(ranks, table, {device}, table.machine);
  EXPECT_TRUE(prediction.notes.empty()) << prediction.notes[0];
  double fastest = INFINITY;
  const std::vector<Event> recorded = record(recipe, 6, 6).at(0);
  for (std::int64_t step = 1; step < 6; ++step)
    fastest = std::min(fastest, summarize(assembly.plan(), recorded, step).busy[compute_queue]);
  // Other work on the machine moves both; what is meant is that no kernel is forgotten or counted twice.
  EXPECT_GT(prediction.simulation.step_seconds, 0.3 * fastest);
  EXPECT_LT(prediction.simulation.step_seconds, 3 * fastest);
}

// A device that takes kernels, or calls, at once may be faster than kernel by kernel.
TEST(Bench, WhatCallsTakeIsSharedOutAmongTheirKernels) {
  const Assembly assembly(tiny_recipe(), plugins());
  const Plan& plan = assembly.plan();
  for (const std::int32_t taken_as_one : {1, 3}) {
    KernelTimer timer(plan, 1);
    std::vector<double> waiting(plan.queues.size(), 0);
    for (const Call& call : plan.calls) {
      const auto kernels = static_cast<std::int64_t>(plan.steps(call).size());
      timer.begin_call(call.queue, call, 0, 0);
      for (std::int64_t i = 0; i < kernels; ++i)
        timer.end_kernel(call.queue, call, static_cast<std::size_t>(i), static_cast<double>(i + 1));
      timer.end_call(call.queue, call, 0, 1000);
      double& seconds = waiting[static_cast<std::size_t>(call.queue)];
      seconds += 0.25 * static_cast<double>(kernels);
      const bool is_last = call.position + 1 == plan.queues[static_cast<std::size_t>(call.queue)].calls;
      const bool runs = is_last || call.position % taken_as_one == taken_as_one - 1;
      timer.begin_call(call.queue, call, 1, 7);
      timer.end_call(call.queue, call, 1, 7 + (runs ? std::exchange(seconds, 0) : 0));
    }
    EXPECT_GT(timer.result(assembly).size(), 10u);
    for (const KernelTime& time : timer.result(assembly)) EXPECT_NEAR(time.seconds, 0.25, 1e-9) << time.shape;
  }
}

// What shares a link or the host's memory counts as it is while nobody is beside it, which the simulation
// adds again; where the recipe's device computes on the host all count as they are.
TEST(Bench, WhatIsMovedBesideOthersCountsAsItIsAlone) {
  for (const bool own : {true, false}) {
    const Assembly assembly(tiny_recipe({own ? "device.plugin=cpu-async" : "device.plugin=cpu"}, offloaded()),
                            plugins());
    const Plan& plan = assembly.plan();
    KernelTimer timer(plan, 8);
    for (int step = 0; step < 16; step += 2)
      for (const Call& call : plan.calls) {
        const double each = step < 4 ? 1 : 3;
        timer.begin_call(call.queue, call, step, 0);
        for (std::size_t i = 0; i < plan.steps(call).size(); ++i)
          timer.end_kernel(call.queue, call, i, each * static_cast<double>(i + 1));
      }
    int alone = 0, others = 0;
    for (const KernelTime& time : timer.result(assembly)) {
      const bool moves = time.op == "copy" || time.op == "adamw";
      EXPECT_NEAR(time.seconds, own && moves ? 1 : 17.0 / 7, 1e-9) << time.shape;
      ++(moves ? alone : others);
    }
    EXPECT_GT(alone, 2);
    EXPECT_GT(others, 10);
  }
}

TEST(Bench, ARankOfManyIsTimedWithoutTheOthers) {
  const Recipe recipe =
      tiny_recipe({"batch.global=16384", one_thread[0], one_thread[1]}, data_parallel(4096));
  EXPECT_GT(time_kernels(recipe, plugins(), 1).size(), 10u);
  EXPECT_EQ(time_kernels(recipe, plugins(), 1, 3).size(), time_kernels(recipe, plugins(), 1).size());
}

// The gradients of each layer, once a step among both ranks, and the kernels of either.
TEST(Bench, ALayoutIsTimedWithItsExchanges) {
  const Recipe recipe = tiny_recipe({"batch.micro=2", one_thread[0], one_thread[1]}, data_parallel(2));
  const Assembly assembly(recipe, plugins());
  const TimedLayout timed = time_layout(recipe, plugins().places(), 2);
  const std::map<ExactExchange, ExchangeTime>& exchanges = timed.exchanges;
  EXPECT_EQ(timed.steps, 2);
  EXPECT_GT(timed.overheads.handoff, 0);
  EXPECT_EQ(timed.kernels.size(), time_kernels(recipe, plugins(), 1).size());
  std::set<ExactExchange> planned;
  for (const Call& call : assembly.plan().calls)
    for (const PlannedStep& step : assembly.plan().steps(call))
      if (step.exchange)
        planned.insert(exact_exchange(*step.exchange, 2, std::string(assembly.device_info().name.view()),
                                      assembly.plan().queues[static_cast<std::size_t>(call.queue)].name));
  EXPECT_EQ(exchanges.size(), planned.size());
  for (const ExactExchange& exchange : planned) {
    EXPECT_GT(exchanges.at(exchange).seconds, 0) << exchange.bytes;
    EXPECT_GT(exchanges.at(exchange).lateness, 0) << exchange.bytes;
  }
}

// Without the others a rank still has numbers to compute with.
TEST(Bench, AnEchoFillsWhatOthersWouldSend) {
  const char* layouts[] = {"[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n",
                           "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n"};
  for (const char* layout : layouts) {
    const Recipe recipe =
        tiny_recipe({one_thread[0], one_thread[1], "model.layers=4", "run.poison=true"}, layout);
    const Assembly assembly(recipe, plugins(), 1);
    Membership membership;
    membership.alone = true;
    Trainer trainer(assembly, plugins(), membership);
    for (int step = 0; step < 2; ++step) {
      const StepResult result = trainer.step();
      EXPECT_TRUE(std::isfinite(result.loss) && result.loss > 0) << layout << result.loss;
      EXPECT_TRUE(std::isfinite(result.grad_norm) && result.grad_norm > 0) << layout << result.grad_norm;
    }
  }
}

TEST(Bench, OverheadsAreSmallAndReal) {
  const Overheads overheads = time_overheads(*cpu_device(1));
  EXPECT_GT(overheads.call, 0);
  EXPECT_LT(overheads.call, 1e-3);
  EXPECT_GT(overheads.handoff, 0);
}

TEST(Bench, ExchangesAreTimedForEveryKindAndSize) {
  const CostTable table = bench_comm(recipe_of_ranks(3, plugins()), plugins().places(), {}, 1 << 14);
  EXPECT_EQ(table.exchanges.size(), 6u);
  for (const auto& [key, curve] : table.exchanges) {
    EXPECT_EQ(key.members, key.kind == CommKind::send ? 2 : 3);
    EXPECT_EQ(curve.points.size(), 3u);
    EXPECT_EQ(key.device, host_exchanges);
    for (const ExchangePoint& point : curve.points) EXPECT_GT(point.seconds, 0);
  }
}

// On the device's queue, which some plugins split their communicators for, or through pinned memory.
TEST(Bench, ExchangesOfADevicesOwnMemoryAreTimedThere) {
  for (const std::vector<std::string>& sets : {std::vector<std::string>{"comm.default=meet-async"},
                                               {"comm.default=meet-async", "comm.meet-async.split=true"},
                                               {"comm.default=ucx"}}) {
    std::vector<std::string> all = {"device.plugin=cpu-async", "batch.micro=1"};
    all.insert(all.end(), sets.begin(), sets.end());
    const CostTable table = bench_comm(tiny_recipe(all, data_parallel(4)), plugins().places(), {}, 1 << 14);
    EXPECT_EQ(table.exchanges.size(), 6u);
    for (const auto& [key, curve] : table.exchanges) {
      EXPECT_EQ(key.device, "cpu-async") << sets.front();
      EXPECT_EQ(curve.points.size(), 3u);
      for (const ExchangePoint& point : curve.points) EXPECT_GT(point.seconds, 0) << name_of(key.kind);
    }
  }
}

TEST(Bench, BusBandwidthCountsAsNcclTestsDoes) {
  EXPECT_DOUBLE_EQ(bus_share(CommKind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_share(CommKind::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_share(CommKind::reduce_scatter, 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_share(CommKind::send, 2), 1);
}

TEST(Trace, ATextOfOneIsTheSameTrace) {
  const RankTrace trace{3, {"compute", "dp reduce"}, {{1, true, "wait for compute", 7, 0.1, 1e5 + 1e-9}, {}}};
  const RankTrace back = read_trace(to_text(trace));
  EXPECT_EQ(trace_json({&back, 1}), trace_json({&trace, 1}));
  EXPECT_EQ(back.rows.size(), 2u);
  EXPECT_EQ(back.rows[0].end, trace.rows[0].end);
}

}  // namespace
}  // namespace prun::test::trace_test
