#include "measure/layout_bench.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/json.hpp"
#include "estimate/moved_bytes.hpp"
#include "measure/kernel_bench.hpp"

namespace prun {
namespace {

// A step that takes longer is timed a few times only; so is one if the first, in which libraries begin, takes
// longer than that.
constexpr double long_step_seconds = 3, long_first_seconds = 20;

// Notes when a rank's exchanges began and ended, by queue, each in the order of the queue.
class ExchangeTimer final : public Probe {
 public:
  struct Time {
    double begin = 0, end = 0;
  };

  // Measures `steps` steps; later ones are not kept.
  ExchangeTimer(const Plan& plan, std::int64_t steps) : queues_(plan.queues.size()) {
    for (std::size_t q = 0; q < queues_.size(); ++q)
      queues_[q].times.reserve(exchanges_of(plan, q).size() * static_cast<std::size_t>(steps));
  }

  bool each_kernel() const noexcept override { return true; }

  // Returns the exchanges of one step.
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

  // Must be called while no step runs.
  void forget() {
    for (Queue& queue : queues_) queue.times.clear();
  }
  const std::vector<Time>& times(std::size_t queue) const { return queues_[queue].times; }

 private:
  struct alignas(64) Queue {  // is written by one thread
    std::vector<Time> times;
    double begin = 0;
  };

  std::vector<Queue> queues_;
};

// Answers for a rank: times of its kernels, and when its exchanges began and ended.
class LayoutTimer {
 public:
  explicit LayoutTimer(std::int64_t steps) : steps_(steps) {}

  std::vector<Probe*> probes(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    RankProbes& own = probes_[assembly.rank()];
    own = {std::make_unique<KernelTimer>(assembly.plan(), steps_),
           std::make_unique<ExchangeTimer>(assembly.plan(), steps_)};
    return {own.kernels.get(), own.exchanges.get()};
  }

  // Some steps warm it up. If one of them takes long on any rank, as few are timed as have every number: one
  // with each kernel by itself, and one with whole calls.
  std::string time(Trainer& trainer) {
    const Assembly& assembly = trainer.assembly();
    const Overheads overheads = time_overheads(*assembly.devices().front());
    const std::int64_t steps = warm_up(trainer) ? std::min<std::int64_t>(steps_, 2) : steps_;
    RankProbes* own = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      own = &probes_.at(assembly.rank());
    }
    own->kernels->forget();
    own->exchanges->forget();
    trainer.run(steps, [](const StepResult&) {});
    JsonWriter json;
    json.begin_object().member("device", std::string(assembly.device_info().name.view()));
    json.member("steps", steps).member("call", overheads.call).member("handoff", overheads.handoff);
    write_kernels(own->kernels->result(assembly), json);
    write_exchanges(assembly, *own->exchanges, steps, json);
    return json.end_object().take();
  }

 private:
  struct RankProbes {
    std::unique_ptr<KernelTimer> kernels;
    std::unique_ptr<ExchangeTimer> exchanges;
  };

  // Returns whether a step takes long, which all ranks learn by the one behind it.
  static bool warm_up(Trainer& trainer) {
    double last = 0;
    const auto stops = [&](bool stop) {
      const auto begin = std::chrono::steady_clock::now();
      const bool all = trainer.step(stop).stop;
      last = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return all;
    };
    stops(false);
    return stops(last > long_first_seconds) || stops(last > long_step_seconds);
  }

  static void write_kernels(const std::vector<KernelTime>& kernels, JsonWriter& json) {
    json.name("kernels").begin_array();
    for (const KernelTime& one : kernels)
      json.begin_object()
          .member("device", one.device)
          .member("op", one.op)
          .member("type", static_cast<int>(one.type))
          .member("shape", one.shape)
          .member("flops", one.cost.flops)
          .member("bytes", one.cost.bytes)
          .member("repeated", one.cost.repeated)
          .member("seconds", one.seconds)
          .member("over_link", one.over_link)
          .end_object();
    json.end_array();
  }

  static void write_exchanges(const Assembly& assembly, const ExchangeTimer& timer, std::int64_t steps,
                              JsonWriter& json) {
    const Plan& plan = assembly.plan();
    json.name("queues").begin_array();
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      const std::vector<const PlannedExchange*> planned = ExchangeTimer::exchanges_of(plan, q);
      const std::vector<ExchangeTimer::Time>& times = timer.times(q);
      PRUN_CHECK(times.size() == planned.size() * static_cast<std::size_t>(steps), times.size(), " times");
      json.begin_object().member("name", plan.queues[q].name).name("members").begin_array();
      for (const int member : plan.queues[q].members(assembly.mesh(), assembly.rank())) json.value(member);
      json.end_array().name("exchanges").begin_array();
      for (std::size_t i = 0; i < times.size(); ++i) {
        const PlannedExchange& exchange = *planned[i % planned.size()];
        json.begin_object()
            .member("kind", static_cast<int>(exchange.kind))
            .member("type", static_cast<int>(exchange.dtype))
            .member("count", exchange.count)
            .member("distance", exchange.distance)
            .member("begin", times[i].begin)
            .member("end", times[i].end)
            .end_object();
      }
      json.end_array().end_object();
    }
    json.end_array();
  }

  std::int64_t steps_;
  std::mutex mutex_;
  std::map<std::int64_t, RankProbes> probes_;
};

// Is one exchange as one member measured it.
struct Attendance {
  PlannedExchange exchange;
  double begin = 0, end = 0;
};

// Holds the exchanges of one queue among the same members, a list for each member, in the order of the queue:
// those with the same number belong together.
using Attendances = std::vector<std::vector<Attendance>>;
using Place = std::pair<std::string, std::vector<int>>;  // holds the queue's name, its members

// Holds what follows from all ranks' answers.
class LayoutTimes {
 public:
  void take(const std::string& answer) {
    const JsonValue rank = parse_json(answer, "a rank's times");
    if (device_.empty()) {
      device_ = rank.at("device").as_string();
      overheads_ = {rank.at("call").as_double(), rank.at("handoff").as_double()};
    }
    steps_ = rank.at("steps").as_int64();
    for (const JsonValue& one : rank.at("kernels").as_array()) {
      const OpCost cost{one.at("flops").as_double(), one.at("bytes").as_double(),
                        one.at("repeated").as_double()};
      kernels_.push_back({one.at("device").as_string(), one.at("op").as_string(),
                          static_cast<DType>(one.at("type").as_int64()), one.at("shape").as_string(), cost,
                          one.at("seconds").as_double(), one.at("over_link").as_bool()});
    }
    for (const JsonValue& queue : rank.at("queues").as_array()) take_exchanges(queue);
  }

  TimedLayout all() const { return {kernels(), exchanges(), overheads_, steps_}; }

 private:
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

  std::map<ExactExchange, ExchangeTime> exchanges() const {
    std::map<ExactExchange, ExchangeTime> known;
    std::map<ExactExchange, Samples> samples;
    for (const auto& [place, attendances] : attendances_) {
      PRUN_CHECK(attendances.size() == place.second.size(), "queue ", place.first);
      for (std::size_t i = 0; i < attendances.front().size(); ++i) add(place, attendances, i, samples);
    }
    for (auto& [key, list] : samples) known[key] = {trimmed_mean(list.seconds), trimmed_mean(list.lateness)};
    return known;
  }

  struct Samples {
    std::vector<double> seconds, lateness;
  };

  void take_exchanges(const JsonValue& queue) {
    Place place{queue.at("name").as_string(), {}};
    for (const JsonValue& member : queue.at("members").as_array())
      place.second.push_back(static_cast<int>(member.as_int64()));
    const JsonArray& list = queue.at("exchanges").as_array();
    if (list.empty()) return;
    std::vector<Attendance>& own = attendances_[place].emplace_back();
    for (const JsonValue& one : list) {
      PlannedExchange exchange;
      exchange.kind = static_cast<CommKind>(one.at("kind").as_int64());
      exchange.dtype = static_cast<DType>(one.at("type").as_int64());
      exchange.count = one.at("count").as_int64();
      exchange.distance = one.at("distance").as_int64();
      own.push_back({exchange, one.at("begin").as_double(), one.at("end").as_double()});
    }
  }

  void add(const Place& place, const Attendances& attendances, std::size_t number,
           std::map<ExactExchange, Samples>& samples) const {
    double last = 0, begins = 0, end = 0;
    for (const std::vector<Attendance>& list : attendances) {
      const Attendance& one = list.at(number);
      last = std::max(last, one.begin);
      begins += one.begin;
      // A sender may be done before the data has arrived.
      if (one.exchange.kind != CommKind::send || one.exchange.distance != 0) end = std::max(end, one.end);
    }
    const PlannedExchange& exchange = attendances.front().at(number).exchange;
    Samples& list = samples[exact_exchange(exchange, static_cast<std::int64_t>(place.second.size()), device_,
                                           place.first)];
    list.seconds.push_back(std::max(0.0, end - last));
    list.lateness.push_back(last - begins / static_cast<double>(attendances.size()));
  }

  std::string device_;  // that of the first, by which all are planned
  Overheads overheads_;
  std::int64_t steps_ = 0;
  std::vector<KernelTime> kernels_;
  std::map<Place, Attendances> attendances_;
};

}  // namespace

Recipe timed_layout(const Recipe& recipe) { return recipe.with("run.resume", ""); }

MakeQuestion how_long_steps_take(std::int64_t steps) {
  return [steps](LocalPlace) {
    const auto timer = std::make_shared<LayoutTimer>(steps);
    return Question{
        [timer](Trainer& trainer) { return timer->time(trainer); },
        [timer](const Assembly& assembly, const Communicators*) { return timer->probes(assembly); }};
  };
}

TimedLayout time_layout(const Recipe& recipe, const std::vector<SearchPlace>& places, std::int64_t steps,
                        const std::vector<std::string>& command) {
  LayoutTimes times;
  for (const std::string& answer :
       ask_ranks(timed_layout(recipe), places, how_long_steps_take(steps), command))
    times.take(answer);
  return times.all();
}

}  // namespace prun
