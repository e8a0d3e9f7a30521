// Probes of a device whose queues run later: every call and wait is told once, in the queue's order, with
// times of the probes' clock; live ones hear of it while the step runs.
#include <gtest/gtest.h>

#include <mutex>

#include "inspect/recorder.hpp"
#include "measure/kernel_bench.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::async_probe_test {
namespace {

// By queue, what began or ended, as "began 3", "ended 3".
class Log final : public Probe {
 public:
  explicit Log(const Plan& plan) : lines_(plan.queues.size()) {}
  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    add(queue, "began ", call);
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    add(queue, "ended ", call);
  }
  void waits(std::int32_t queue, bool waiting, double) noexcept override {
    exchanging_ += queue != compute_queue && waiting;
  }
  const std::vector<std::vector<std::string>>& lines() const { return lines_; }
  int exchanging() const { return exchanging_; }

 private:
  void add(std::int32_t queue, const char* what, const Call& call) {
    lines_[static_cast<std::size_t>(queue)].push_back(what + std::to_string(call.position));
  }
  std::vector<std::vector<std::string>> lines_;
  int exchanging_ = 0;
};

struct Watched {
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<KernelTimer> kernels;
  std::unique_ptr<Log> log;
};

constexpr std::int64_t steps = 3;

Recipe two_ranks() {
  return tiny_recipe(
      {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20", "batch.micro=1"},
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n[[strategy]]\nplugin = "
      "'zero'\nstage = 3\n");
}

// Runs the recipe on all ranks and hands each rank's probes on, with when its last step began and ended.
template <class Check>
void watch(const Recipe& recipe, bool kernels, Check&& check) {
  std::mutex mutex;
  std::map<std::int64_t, Watched> watched;
  const Probes probes = [&](const Assembly& assembly, const Communicators*) {
    const std::scoped_lock lock(mutex);
    Watched& own = watched[assembly.rank()];
    own = {std::make_unique<Recorder>(assembly.plan(), steps),
           std::make_unique<KernelTimer>(assembly.plan(), steps), std::make_unique<Log>(assembly.plan())};
    std::vector<Probe*> list{own.recorder.get(), own.log.get()};
    if (kernels) list.push_back(own.kernels.get());
    return list;
  };
  run_local_ranks(
      recipe, plugins().places(),
      [&](Trainer& trainer) {
        const double begin = probe_clock();
        for (std::int64_t step = 0; step < steps; ++step) trainer.step();
        const double end = probe_clock();
        const std::scoped_lock lock(mutex);
        check(trainer.assembly(), watched.at(trainer.assembly().rank()), begin, end);
      },
      probes);
  EXPECT_EQ(watched.size(), 2u);
}

TEST(AsyncProbes, ARecorderSeesEveryCallAndWaitWithinTheStepsTime) {
  watch(two_ranks(), false, [](const Assembly& assembly, const Watched& own, double begin, double end) {
    const Plan& plan = assembly.plan();
    std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> expected(plan.queues.size()),
        seen = expected;
    for (std::int64_t step = 0; step < steps; ++step)
      for (const Call& call : plan.calls) {
        auto& queue = expected[static_cast<std::size_t>(call.queue)];
        for (const Wait& wait : call.waits)
          if (step >= wait.steps_ago) queue.push_back({call.position, wait.queue});
        queue.push_back({call.position, -1});
      }
    std::vector<double> last(plan.queues.size(), 0);
    for (const Event& event : own.recorder->events()) {
      const auto queue = static_cast<std::size_t>(event.queue);
      seen[queue].push_back({event.position, event.waits_for});
      EXPECT_LE(event.begin, event.end);
      EXPECT_GE(event.begin, last[queue]);
      constexpr double as_the_clocks_were_set = 1e-3;
      EXPECT_GT(event.begin, begin - as_the_clocks_were_set);
      EXPECT_LT(event.end, end + as_the_clocks_were_set);
      last[queue] = event.end;
    }
    EXPECT_EQ(seen, expected);
  });
}

TEST(AsyncProbes, ALiveOneHearsOfEveryCallInTheQueuesOrder) {
  watch(two_ranks(), false, [](const Assembly& assembly, const Watched& own, double, double) {
    const Plan& plan = assembly.plan();
    std::vector<std::vector<std::string>> expected(plan.queues.size());
    int exchanges = 0;
    for (std::int64_t step = 0; step < steps; ++step)
      for (const Call& call : plan.calls) {
        expected[static_cast<std::size_t>(call.queue)].push_back("began " + std::to_string(call.position));
        expected[static_cast<std::size_t>(call.queue)].push_back("ended " + std::to_string(call.position));
        exchanges += plan.queues[static_cast<std::size_t>(call.queue)].communicates();
      }
    EXPECT_EQ(own.log->lines(), expected);
    EXPECT_EQ(own.log->exchanging(), exchanges);
  });
}

TEST(AsyncProbes, KernelsAreTimedOneByOne) {
  watch(two_ranks(), true, [](const Assembly& assembly, const Watched& own, double begin, double end) {
    double sum = 0;
    std::set<std::string> ops;
    for (const KernelTime& time : own.kernels->result(assembly)) {
      EXPECT_GT(time.seconds, 0) << time.shape;
      EXPECT_LT(time.seconds, end - begin) << time.shape;
      sum += time.seconds;
      ops.insert(time.op);
    }
    EXPECT_GT(sum, 0);
    for (const char* op : {"linear", "attention", "adamw", "copy"}) EXPECT_EQ(ops.count(op), 1u) << op;
  });
}

}  // namespace
}  // namespace prun::test::async_probe_test
