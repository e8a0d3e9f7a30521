#include "measure/layout_bench.hpp"

#include <algorithm>
#include <mutex>

#include "plan/traffic.hpp"
#include "train/local_ranks.hpp"

namespace prun {
namespace {

// When a rank's exchanges began and ended, by queue, each in the order of the queue.
class ExchangeTimer final : public Probe {
 public:
  struct Time {
    double begin = 0, end = 0;
  };

  // Of so many steps, beyond which nothing is kept.
  ExchangeTimer(const Plan& plan, std::int64_t steps) : queues_(plan.queues.size()) {
    for (std::size_t q = 0; q < queues_.size(); ++q)
      queues_[q].times.reserve(exchanges_of(plan, q).size() * static_cast<std::size_t>(steps));
  }

  bool each_kernel() const noexcept override { return true; }

  // Of one step.
  static std::vector<const PlannedExchange*> exchanges_of(const Plan& plan, std::size_t queue) {
    std::vector<const PlannedExchange*> list;
    for (const Call& call : plan.calls)
      if (static_cast<std::size_t>(call.queue) == queue)
        for (const PlannedStep& step : plan.steps(call))
          if (step.exchange) list.push_back(&*step.exchange);
    return list;
  }

  void begin_call(std::int32_t queue, const Call&, std::int64_t, double at) noexcept override {
    queues_[static_cast<std::size_t>(queue)].begin = at;
  }
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  // A call's next exchange begins where the one before has ended.
  void waits(std::int32_t index, bool waiting, double at) noexcept override {
    Queue& queue = queues_[static_cast<std::size_t>(index)];
    if (waiting || queue.times.size() == queue.times.capacity()) return;
    queue.times.push_back({queue.begin, at});
    queue.begin = at;
  }

  // While no step runs.
  void forget() {
    for (Queue& queue : queues_) queue.times.clear();
  }
  const std::vector<Time>& times(std::size_t queue) const { return queues_[queue].times; }

 private:
  struct alignas(64) Queue {  // written by one thread
    std::vector<Time> times;
    double begin = 0;
  };

  std::vector<Queue> queues_;
};

// One exchange as one member had it.
struct Attendance {
  PlannedExchange exchange;
  double begin = 0, end = 0;
};

// The exchanges of one queue among the same members, by rank, each in the order of the queue: the ones with
// the same number belong together.
using Attendances = std::map<int, std::vector<Attendance>>;
using Place = std::pair<std::string, std::vector<int>>;  // the queue's name, its members

class LayoutTimer {
 public:
  LayoutTimer(const Recipe& recipe, std::int64_t steps) : recipe_(recipe), steps_(steps) {}

  void run(const std::vector<SearchPlace>& places) {
    run_local_ranks(
        recipe_, places, [this](Trainer& trainer) { time(trainer); },
        [this](const Assembly& assembly, const Communicators*) { return probes(assembly); });
  }

  std::vector<KernelTime> kernels() const {
    std::map<std::pair<std::string, std::string>, std::vector<KernelTime>> by_shape;
    for (const KernelTime& time : kernels_) by_shape[{time.device, time.shape}].push_back(time);
    std::vector<KernelTime> all;
    for (auto& [key, times] : by_shape) {
      double sum = 0;
      for (const KernelTime& time : times) sum += time.seconds;
      all.push_back(times.front());
      all.back().seconds = sum / static_cast<double>(times.size());
    }
    return all;
  }

  void exchanges(std::map<ExactExchange, ExchangeTime>& known) const {
    std::map<ExactExchange, Samples> samples;
    for (const auto& [place, attendances] : attendances_) {
      PRUN_CHECK(attendances.size() == place.second.size(), "queue ", place.first);
      for (std::size_t i = 0; i < attendances.begin()->second.size(); ++i)
        add(place, attendances, i, samples);
    }
    for (auto& [key, list] : samples) known[key] = {trimmed_mean(list.seconds), trimmed_mean(list.lateness)};
  }

 private:
  struct Samples {
    std::vector<double> seconds, lateness;
  };
  struct RankProbes {
    std::unique_ptr<KernelTimer> kernels;
    std::unique_ptr<ExchangeTimer> exchanges;
  };

  std::vector<Probe*> probes(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    RankProbes& own = probes_[assembly.rank()];
    own = {std::make_unique<KernelTimer>(assembly.plan(), steps_),
           std::make_unique<ExchangeTimer>(assembly.plan(), steps_)};
    return {own.kernels.get(), own.exchanges.get()};
  }

  // Two steps to warm up.
  void time(Trainer& trainer) {
    const Assembly& assembly = trainer.assembly();
    for (int warm = 0; warm < 2; ++warm) trainer.step();
    RankProbes* own = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      own = &probes_.at(assembly.rank());
    }
    own->kernels->forget();
    own->exchanges->forget();
    trainer.run(steps_, [](const StepResult&) {});
    const std::scoped_lock lock(mutex_);
    for (KernelTime& one : own->kernels->result(assembly)) kernels_.push_back(std::move(one));
    take_exchanges(assembly, *own->exchanges);
  }

  void take_exchanges(const Assembly& assembly, const ExchangeTimer& timer) {
    const Plan& plan = assembly.plan();
    device_ = assembly.device_info().name.view();
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      const std::vector<const PlannedExchange*> planned = ExchangeTimer::exchanges_of(plan, q);
      const std::vector<ExchangeTimer::Time>& times = timer.times(q);
      PRUN_CHECK(times.size() == planned.size() * static_cast<std::size_t>(steps_), times.size(), " times");
      const Place place{plan.queues[q].name, plan.queues[q].members(assembly.mesh(), assembly.rank())};
      for (std::size_t i = 0; i < times.size(); ++i)
        attendances_[place][static_cast<int>(assembly.rank())].push_back(
            {*planned[i % planned.size()], times[i].begin, times[i].end});
    }
  }

  void add(const Place& place, const Attendances& attendances, std::size_t number,
           std::map<ExactExchange, Samples>& samples) const {
    double last = 0, begins = 0, end = 0;
    for (const auto& [rank, list] : attendances) {
      const Attendance& one = list.at(number);
      last = std::max(last, one.begin);
      begins += one.begin;
      // Whoever sends may be done before it has arrived.
      if (one.exchange.kind != CommKind::send) end = std::max(end, one.end);
    }
    const auto members = static_cast<double>(attendances.size());
    const PlannedExchange& exchange = attendances.begin()->second.at(number).exchange;
    Samples& list = samples[exact_exchange(exchange, static_cast<std::int64_t>(place.second.size()), device_,
                                           place.first)];
    list.seconds.push_back(std::max(0.0, end - last));
    list.lateness.push_back(last - begins / members);
  }

  const Recipe recipe_;
  std::int64_t steps_;
  std::mutex mutex_;
  std::map<std::int64_t, RankProbes> probes_;
  std::string device_;
  std::vector<KernelTime> kernels_;
  std::map<Place, Attendances> attendances_;
};

}  // namespace

std::vector<KernelTime> time_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                    std::int64_t steps, std::map<ExactExchange, ExchangeTime>& exchanges) {
  LayoutTimer timer(recipe.with("run.resume", ""), steps);
  timer.run(places);
  timer.exchanges(exchanges);
  return timer.kernels();
}

}  // namespace prun
