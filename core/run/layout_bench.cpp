#include "run/layout_bench.hpp"

#include <algorithm>
#include <mutex>

#include "plan/traffic.hpp"
#include "run/local_ranks.hpp"
#include "run/recorder.hpp"

namespace prun {
namespace {

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
    std::map<std::string, std::vector<KernelTime>> by_shape;
    for (const KernelTime& time : kernels_) by_shape[time.shape].push_back(time);
    std::vector<KernelTime> all;
    for (auto& [shape, times] : by_shape) {
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
    for (auto& [key, list] : samples) known[key] = {usual(list.seconds), usual(list.lateness)};
  }

 private:
  struct Samples {
    std::vector<double> seconds, lateness;
  };
  struct RankProbes {
    std::unique_ptr<KernelTimer> kernels;
    std::unique_ptr<Recorder> recorder;
  };

  std::vector<Probe*> probes(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    RankProbes& own = probes_[assembly.rank()];
    own = {std::make_unique<KernelTimer>(assembly.plan(), steps_),
           std::make_unique<Recorder>(assembly.plan(), steps_)};
    return {own.kernels.get(), own.recorder.get()};
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
    for (std::int64_t step = 0; step < steps_; ++step) trainer.step();
    const std::scoped_lock lock(mutex_);
    for (KernelTime& one : own->kernels->result(assembly.program())) kernels_.push_back(std::move(one));
    take_exchanges(assembly, own->recorder->events());
  }

  // Calls of one exchange each; what several take together says nothing of one.
  void take_exchanges(const Assembly& assembly, const std::vector<Event>& events) {
    const Plan& plan = assembly.plan();
    device_ = assembly.device_info().name.view();
    std::map<std::pair<std::int32_t, std::int32_t>, const Call*> calls;
    for (const Call& call : plan.calls) calls[{call.queue, call.position}] = &call;
    for (const Event& event : events) {
      const QueueInfo& queue = plan.queues[static_cast<std::size_t>(event.queue)];
      if (event.waits_for >= 0 || queue.axis < 0) continue;
      const std::span<const PlannedStep> steps = plan.steps(*calls.at({event.queue, event.position}));
      if (steps.size() != 1) continue;
      attendances_[{queue.name, queue.members(assembly.mesh(), assembly.rank())}]
                  [static_cast<int>(assembly.rank())]
                      .push_back({*steps[0].exchange, event.begin, event.end});
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
