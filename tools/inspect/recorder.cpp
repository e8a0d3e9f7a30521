#include "inspect/recorder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/json.hpp"
#include "base/narrow.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/forecast.hpp"
#include "estimate/trace.hpp"
#include "ranks/rank_answers.hpp"

namespace prun {

// ------------------------------------------------------------------- recorder

Recorder::Recorder(const Plan& plan, std::int64_t steps) : rings_(plan.queues.size()) {
  PRUN_CHECK(steps > 0, steps, " steps");
  std::vector<std::size_t> events(plan.queues.size(), 0);
  for (const Call& call : plan.calls) events[static_cast<std::size_t>(call.queue)] += 1 + call.waits.size();
  for (std::size_t q = 0; q < rings_.size(); ++q)
    rings_[q].slots.resize(events[q] * static_cast<std::size_t>(steps));
}

void Recorder::begin_call(std::int32_t queue, const Call&, std::int64_t, double at) noexcept {
  rings_[static_cast<std::size_t>(queue)].begin = at;
}
void Recorder::end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept {
  end(queue, call, -1, step, at);
}
void Recorder::begin_wait(std::int32_t queue, const Call&, const Wait&, std::int64_t, double at) noexcept {
  rings_[static_cast<std::size_t>(queue)].begin = at;
}
void Recorder::end_wait(std::int32_t queue, const Call& call, const Wait& wait, std::int64_t step,
                        double at) noexcept {
  end(queue, call, wait.queue, step, at);
}

void Recorder::end(std::int32_t queue, const Call& call, std::int32_t waits_for, std::int64_t step,
                   double at) noexcept {
  Ring& ring = rings_[static_cast<std::size_t>(queue)];
  ring.slots[ring.written++ % ring.slots.size()] = {queue, call.position, waits_for, step, ring.begin, at};
}

std::vector<Event> Recorder::events() const {
  std::vector<Event> all;
  for (const Ring& ring : rings_) {
    const std::uint64_t kept = std::min<std::uint64_t>(ring.written, ring.slots.size());
    for (std::uint64_t i = ring.written - kept; i < ring.written; ++i)
      all.push_back(ring.slots[i % ring.slots.size()]);
  }
  return all;
}

std::uint64_t Recorder::lost() const {
  std::uint64_t lost = 0;
  for (const Ring& ring : rings_)
    if (ring.written > ring.slots.size()) lost += ring.written - ring.slots.size();
  return lost;
}

namespace {

// ------------------------------------------------------------------- trace verb
// Implements prun trace: it shows when each queue of every rank does what, in a real run or a simulated one.

constexpr std::int64_t most_steps = 1000;

const OutputKind trace_kind{"a trace of prun", trace_mark};

std::string times_text(const std::vector<QueueInfo>& queues, const StepTimes& times) {
  std::string text;
  for (std::size_t q = 0; q < queues.size(); ++q)
    text += format("  %-16s busy %9.3f ms, waits for others %9.3f ms\n", queues[q].name.c_str(),
                   times.busy[q] * 1e3, times.waiting[q] * 1e3);
  return text +
         format("  exposed communication %.3f ms, held up by copies, updates elsewhere and drives %.3f ms\n",
                times.exposed_communication * 1e3, times.exposed_transfers * 1e3);
}

void write(const std::filesystem::path& file, std::vector<RankTrace> ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  write_cleanly(file, trace_json(ranks) + "\n", trace_kind);
  std::printf("wrote %s; open it in ui.perfetto.dev\n", file.c_str());
}

int simulated(const Arguments& arguments, const Opened& opened, const std::filesystem::path& out) {
  const Assembly assembly(*opened.recipe, *opened.plugins);
  const Forecast forecast = prun::forecast(assembly, *opened.plugins, arguments.path("--costs"));
  if (!forecast.prediction) throw_error(ErrorCode::not_found, forecast.missing);
  const bool saves = arguments.has("--save");
  if (saves && !(forecast.save && forecast.save->simulation))
    throw_error(ErrorCode::bad_input,
                "nothing is saved beside steps in this recipe; set run.save_every, and no run.save_memory = "
                "\"all\"");
  const Simulation& simulation = saves ? *forecast.save->simulation : forecast.prediction->simulation;
  std::printf("simulated: %.3f ms a step, exposed communication %.3f ms\n", simulation.step_seconds * 1e3,
              simulation.exposed_communication() * 1e3);
  for (const std::string& note : forecast.prediction->notes) std::printf("  %s\n", note.c_str());
  std::vector<RankTrace> traces;
  for (const RankTimes& rank : simulation.ranks) {
    const SimulatedRank& of = rank.simulated;
    traces.push_back(trace_of(*of.program, *of.plan, rank.rank, rank.events));
    std::printf("rank %d%s\n", rank.rank,
                rank.alike > 1 ? (", one of " + std::to_string(rank.alike) + " alike").c_str() : "");
    std::fputs(times_text(of.plan->queues, rank.times).c_str(), stdout);
  }
  write(out, std::move(traces));
  return 0;
}

// Runs ranks, each with its recorder.
class Recording {
 public:
  explicit Recording(std::int64_t steps) : steps_(steps) {}

  std::vector<Probe*> probes(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Recorder>& recorder = recorders_[assembly.rank()];
    recorder = std::make_unique<Recorder>(assembly.plan(), steps_ + 3 * others(assembly.plan()));
    return {recorder.get()};
  }

  // Returns what to say of the rank, and its trace. One step warms it up. Where steps overlap, the recorded
  // steps are between others, with which a row of them begins and ends.
  std::string run(Trainer& trainer) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    trainer.step();
    Clock::time_point before = Clock::now();
    const Assembly& assembly = trainer.assembly();
    const std::int64_t before_and_behind = others(assembly.plan());
    trainer.run(steps_ + 2 * before_and_behind, [&](const StepResult&) {
      const Clock::time_point now = Clock::now();
      seconds.push_back(std::chrono::duration<double>(now - std::exchange(before, now)).count());
    });
    seconds.erase(seconds.begin(), seconds.begin() + (before_and_behind > 0));
    seconds.resize(static_cast<std::size_t>(steps_));
    const std::vector<Event> events = events_of(assembly.rank());
    const std::string said =
        format("rank %lld: %.3f ms a step (the median of %lld%s; the fastest %.3f)\n",
               static_cast<long long>(assembly.rank()), median(seconds) * 1e3, static_cast<long long>(steps_),
               before_and_behind > 0 ? " between drains" : "",
               *std::min_element(seconds.begin(), seconds.end()) * 1e3) +
        times_text(assembly.plan().queues, mean(assembly.plan(), events));
    const RankTrace trace =
        trace_of(assembly.program(), assembly.plan(), static_cast<int>(assembly.rank()), events);
    JsonWriter json;
    return json.begin_object().member("said", said).member("trace", to_text(trace)).end_object().take();
  }

 private:
  std::vector<Event> events_of(std::int64_t rank) {
    const std::scoped_lock lock(mutex_);
    return recorders_.at(rank)->events();
  }

  // Counts the steps that a row of them begins with, and as many that it ends with: alike on all ranks.
  static std::int64_t others(const Plan& plan) { return plan.overlaps ? plan.running - 1 : 0; }

  StepTimes mean(const Plan& plan, const std::vector<Event>& events) const {
    StepTimes mean;
    mean.busy.resize(plan.queues.size());
    mean.waiting.resize(plan.queues.size());
    const auto steps = static_cast<double>(steps_);
    const std::int64_t first = 1 + others(plan);
    for (std::int64_t step = first; step < first + steps_; ++step) {
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
};

MakeQuestion what_queues_do(std::int64_t steps) {
  return [steps](LocalPlace) {
    const auto recording = std::make_shared<Recording>(steps);
    return Question{
        [recording](Trainer& trainer) { return recording->run(trainer); },
        [recording](const Assembly& assembly, const Communicators*) { return recording->probes(assembly); }};
  };
}

int recorded(const Recipe& recipe, PluginHost& plugins, std::int64_t steps, const Arguments& arguments,
             const std::filesystem::path& out) {
  if (mesh_of(recipe).world() > 1 && !ranks_are_processes(recipe, plugins))
    std::printf("ranks are threads of this process, each computes with one thread, none is pinned\n");
  std::vector<RankTrace> traces;
  for (const std::string& answer :
       ask_ranks(recipe, plugins.places(), what_queues_do(steps), arguments.all)) {
    const JsonValue rank = parse_json(answer, "a rank's trace");
    std::fputs(rank.at("said").as_string().c_str(), stdout);
    traces.push_back(read_trace(rank.at("trace").as_string()));
  }
  write(out, std::move(traces));
  return 0;
}

int trace_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const Opened opened = open_recipe(arguments, file, asked_rank());
  const std::int64_t steps = arguments.number("--steps", 3);
  if (steps > most_steps)
    throw_error(ErrorCode::bad_input, "--steps takes at most ", most_steps, " steps for a trace, not ",
                steps);
  const std::filesystem::path out = arguments.path("--out").value_or(
      opened.recipe->text("run.name") + (arguments.has("--simulated") ? ".simulated" : "") + ".trace.json");
  if (!is_asked()) check_output(out, trace_kind);
  if (arguments.has("--save") && !arguments.has("--simulated"))
    throw_error(ErrorCode::bad_input, "--save goes with prun trace RECIPE --simulated");
  if (arguments.has("--simulated")) return simulated(arguments, opened, out);
  const bool many = mesh_of(*opened.recipe).world() > 1;
  const Recipe recipe = many ? with_thread_ranks(*opened.recipe) : *opened.recipe;
  if (is_asked()) return answer(recipe, opened.plugins->places(), what_queues_do(steps));
  return recorded(recipe, *opened.plugins, steps, arguments, out);
}

}  // namespace

std::vector<Command> trace_verb() {
  return {
      {"trace",
       "RECIPE",
       "what every queue does when, as a trace for ui.perfetto.dev; ranks are threads, or processes where "
       "the device wants that",
       {{"--steps", "N", "steps, 3"},
        {"--out", "FILE", "the trace, NAME.trace.json or NAME.simulated.trace.json"},
        {"--simulated", "", "from the cost table, without running"},
        {"--save", "", "with --simulated: as if a save had begun before the first step"},
        costs_option},
       trace_command}};
}

}  // namespace prun
