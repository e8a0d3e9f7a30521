// prun trace: what every queue of every rank does when, from a real run or from a simulated one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/durable_file.hpp"
#include "cli/commands.hpp"
#include "cli/open_recipe.hpp"
#include "execute/recorder.hpp"
#include "inspect/forecast.hpp"
#include "sim/trace.hpp"
#include "train/local_ranks.hpp"

namespace prun {
namespace {

constexpr const char* usage = "prun trace RECIPE [--steps N] [--out FILE] [--simulated] [--costs FILE]";
constexpr std::int64_t most_steps = 1000;

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list.empty() ? 0 : list[list.size() / 2];
}

void print_times(const std::vector<QueueInfo>& queues, const StepTimes& times) {
  for (std::size_t q = 0; q < queues.size(); ++q)
    std::printf("  %-16s busy %9.3f ms, waits for others %9.3f ms\n", queues[q].name.c_str(),
                times.busy[q] * 1e3, times.waiting[q] * 1e3);
  std::printf("  exposed communication %.3f ms\n", times.exposed_communication * 1e3);
}

void write(const std::filesystem::path& file, std::vector<RankTrace> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  replace_text_file(std::filesystem::absolute(file), trace_json(ranks) + "\n");
  std::printf("wrote %s; open it in ui.perfetto.dev\n", file.c_str());
}

int simulated(const Arguments& arguments, const Opened& opened, const std::filesystem::path& out) {
  const Assembly assembly(*opened.recipe, *opened.plugins);
  const Forecast forecast = prun::forecast(assembly, *opened.plugins, arguments.path("--costs"));
  if (!forecast.prediction) throw_error(ErrorCode::not_found, forecast.missing);
  const Simulation& simulation = forecast.prediction->simulation;
  std::printf("simulated: %.3f ms a step, exposed communication %.3f ms\n", simulation.step_seconds * 1e3,
              simulation.exposed_communication() * 1e3);
  for (const std::string& note : forecast.prediction->notes) std::printf("  %s\n", note.c_str());
  std::vector<RankTrace> traces;
  for (const RankTimes& rank : simulation.ranks) {
    const SimulatedRank& of = rank.simulated;
    traces.push_back(trace_of(*of.program, *of.plan, rank.rank, rank.events));
    std::printf("rank %d%s\n", rank.rank,
                rank.alike > 1 ? (", one of " + std::to_string(rank.alike) + " alike").c_str() : "");
    print_times(of.plan->queues, rank.times);
  }
  write(out, std::move(traces));
  return 0;
}

// Ranks that run, each with its recorder.
class Recording {
 public:
  explicit Recording(std::int64_t steps) : steps_(steps) {}

  std::vector<Probe*> probes(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Recorder>& recorder = recorders_[assembly.rank()];
    recorder = std::make_unique<Recorder>(assembly.plan(), steps_);
    return {recorder.get()};
  }

  // One step to warm up, which the recorder forgets.
  void run(Trainer& trainer) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    trainer.step();
    Clock::time_point before = Clock::now();
    trainer.run(steps_, [&](const StepResult&) {
      const Clock::time_point now = Clock::now();
      seconds.push_back(std::chrono::duration<double>(now - std::exchange(before, now)).count());
    });
    const std::scoped_lock lock(mutex_);
    const Assembly& assembly = trainer.assembly();
    const std::vector<Event> events = recorders_.at(assembly.rank())->events();
    traces_.push_back(
        trace_of(assembly.program(), assembly.plan(), static_cast<int>(assembly.rank()), events));
    std::printf("rank %lld: %.3f ms a step (the median of %lld; the fastest %.3f)\n",
                static_cast<long long>(assembly.rank()), median(seconds) * 1e3,
                static_cast<long long>(steps_), *std::min_element(seconds.begin(), seconds.end()) * 1e3);
    print_times(assembly.plan().queues, mean(assembly.plan(), events));
  }

  std::vector<RankTrace> take() { return std::move(traces_); }

 private:
  StepTimes mean(const Plan& plan, const std::vector<Event>& events) const {
    StepTimes mean;
    mean.busy.resize(plan.queues.size());
    mean.waiting.resize(plan.queues.size());
    const auto steps = static_cast<double>(steps_);
    for (std::int64_t step = 1; step <= steps_; ++step) {
      const StepTimes one = summarize(plan, events, step);
      for (std::size_t q = 0; q < plan.queues.size(); ++q) {
        mean.busy[q] += one.busy[q] / steps;
        mean.waiting[q] += one.waiting[q] / steps;
      }
      mean.exposed_communication += one.exposed_communication / steps;
    }
    return mean;
  }

  std::int64_t steps_;
  std::mutex mutex_;
  std::map<std::int64_t, std::unique_ptr<Recorder>> recorders_;
  std::vector<RankTrace> traces_;
};

int recorded(const Recipe& recipe, const std::vector<SearchPlace>& places, std::int64_t steps,
             const std::filesystem::path& out) {
  Recording recording(steps);
  run_local_ranks(
      recipe, places, [&](Trainer& trainer) { recording.run(trainer); },
      [&](const Assembly& assembly, const Communicators*) { return recording.probes(assembly); });
  write(out, recording.take());
  return 0;
}

}  // namespace

int trace_command(const Arguments& arguments) {
  const std::string& file = arguments.only_word(usage);
  const Opened opened = open_recipe(arguments, file);
  const std::int64_t steps = arguments.number("--steps", 3);
  if (steps > most_steps)
    throw_error(ErrorCode::bad_input, "--steps takes at most ", most_steps, " steps for a trace, not ",
                steps);
  const std::filesystem::path out =
      arguments.path("--out").value_or(opened.recipe->text("run.name") + ".trace.json");
  if (arguments.has("--simulated")) return simulated(arguments, opened, out);
  const bool many = mesh_of(*opened.recipe).world() > 1;
  if (many) std::printf("ranks are threads of this process, each computes with one thread, none is pinned\n");
  return recorded(many ? with_thread_ranks(*opened.recipe) : *opened.recipe, opened.plugins->places(), steps,
                  out);
}

}  // namespace prun
