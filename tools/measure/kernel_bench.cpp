#include "measure/kernel_bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/random.hpp"
#include "estimate/moved_bytes.hpp"
#include "measure/io_bench.hpp"
#include "measure/layout_bench.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/model_program.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun {

// ------------------------------------------------------------------- kernel timer

double trimmed_mean(std::vector<double> list) {
  if (list.empty()) return 0;
  std::sort(list.begin(), list.end());
  if (list.size() > 2) list.resize(list.size() - (list.size() + 9) / 10);
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}

double fastest_mean(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  list.resize((list.size() + 3) / 4);
  return trimmed_mean(std::move(list));
}

KernelTimer::KernelTimer(const Plan& plan, std::int64_t steps)
    : plan_(plan), began_(plan.queues.size()), calls_(plan.queues.size()) {
  for (const PlannedFunction& function : plan.functions) {
    first_.push_back(times_.size());
    times_.resize(times_.size() + function.steps.size());
  }
  for (const Call& call : plan.calls) {
    for (std::size_t i = 0; i < plan.steps(call).size(); ++i) ++of(call, i).launches;
    calls_[static_cast<std::size_t>(call.queue)].emplace_back().launches = 1;
  }
  const auto make_room = [steps](std::vector<Times>& list) {
    for (Times& times : list) times.seconds.reserve(static_cast<std::size_t>(times.launches * steps));
  };
  make_room(times_);
  for (std::vector<Times>& calls : calls_) make_room(calls);
}

KernelTimer::Times& KernelTimer::of(const Call& call, std::size_t index) noexcept {
  const auto function = static_cast<std::size_t>(call.function);
  const Piece& piece = plan_.functions[function].pieces[static_cast<std::size_t>(call.piece)];
  return times_[first_[function] + static_cast<std::size_t>(piece.first) + index];
}

void KernelTimer::Times::add(double one) noexcept {
  if (seconds.size() < seconds.capacity()) seconds.push_back(one);
}

void KernelTimer::end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept {
  double& began = began_[static_cast<std::size_t>(queue)];
  of(call, index).add(at - std::exchange(began, at));
}

void KernelTimer::end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept {
  const auto q = static_cast<std::size_t>(queue);
  const bool whole = step % 2 != 0;
  if (whole) calls_[q][static_cast<std::size_t>(call.position)].add(at - began_[q]);
}

void KernelTimer::forget() {
  for (Times& times : times_) times.seconds.clear();
  for (std::vector<Times>& calls : calls_)
    for (Times& times : calls) times.seconds.clear();
}

namespace {

// Returns whether an op changes a value in this way.
bool changes(const Op& op, Id value, Access how) {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == value && op.access(i) == how) return true;
  return false;
}

// Returns whether an op updates all that another one has updated, and reads nothing that the other one kept.
bool repeats(const Op& op, const Op& begun) {
  bool updates = false;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id value = op.operands[i];
    if (value == none) continue;
    if (op.access(i) == Access::read && changes(begun, value, Access::write)) return false;
    if (op.access(i) != Access::update) continue;
    if (!changes(begun, value, Access::update)) return false;
    updates = true;
  }
  return updates;
}

// Returns whether a kernel does all that it is for. `settle` repeats ops of `speculate` in steps beyond the
// limit, and finds updates complete in those that are measured; the device may have fused those ops with
// others.
bool does_all(const Program& program, const PlannedFunction& function, const PlannedStep& step) {
  if (function.kind != FunctionKind::settle) return true;
  const std::vector<Id>& begun = program.segment(function.segment).ops(FunctionKind::speculate);
  return std::none_of(begun.begin(), begun.end(),
                      [&](Id op) { return repeats(program.op(step.op), program.op(op)); });
}

}  // namespace

std::vector<KernelTime> KernelTimer::result(const Assembly& assembly) const {
  const Shares share = shares();
  ByShape by_shape;
  for (std::size_t f = 0; f < plan_.functions.size(); ++f)
    for (std::size_t p = 0; p < share[f].size(); ++p) {
      const Piece& piece = plan_.functions[f].pieces[p];
      for (auto s = static_cast<std::size_t>(piece.first); s < static_cast<std::size_t>(piece.last); ++s)
        if (const PlannedStep& step = plan_.functions[f].steps[s];
            does_all(assembly.program(), plan_.functions[f], step))
          add(assembly, step, times_[first_[f] + s], share[f][p], by_shape);
    }
  std::vector<KernelTime> all;
  for (auto& [key, entry] : by_shape) {
    entry.first.seconds /= entry.second;
    all.push_back(entry.first);
  }
  return all;
}

double KernelTimer::alone(const Call& call) const {
  const auto function = static_cast<std::size_t>(call.function);
  const Piece& piece = plan_.functions[function].pieces[static_cast<std::size_t>(call.piece)];
  double seconds = 0;
  for (auto s = static_cast<std::size_t>(piece.first); s < static_cast<std::size_t>(piece.last); ++s)
    seconds += trimmed_mean(times_[first_[function] + s].seconds);
  return seconds;
}

// Averages over a piece's calls. Calls that take no time were measured with the call after them.
KernelTimer::Shares KernelTimer::shares() const {
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::vector<std::vector<Mean>> means;
  for (const PlannedFunction& function : plan_.functions) means.emplace_back(function.pieces.size());
  std::vector<std::vector<Mean*>> together(plan_.queues.size());
  std::vector<double> kernels(plan_.queues.size(), 0);
  for (const Call& call : plan_.calls) {
    const auto q = static_cast<std::size_t>(call.queue);
    together[q].push_back(
        &means[static_cast<std::size_t>(call.function)][static_cast<std::size_t>(call.piece)]);
    kernels[q] += alone(call);
    const double seconds = trimmed_mean(calls_[q][static_cast<std::size_t>(call.position)].seconds);
    if (seconds == 0 || kernels[q] == 0) continue;
    for (Mean* mean : std::exchange(together[q], {})) {
      mean->sum += seconds / kernels[q];
      ++mean->count;
    }
    kernels[q] = 0;
  }
  Shares shares;
  for (const std::vector<Mean>& function : means) {
    shares.emplace_back();
    for (const Mean& mean : function) shares.back().push_back(mean.count ? mean.sum / mean.count : 1);
  }
  return shares;
}

// The simulation knows what holds such a copy up. Where the recipe's device computes on the host, others do
// as well, on the same cores: there the whole measured time is the cost.
bool KernelTimer::moves_beside_others(const Assembly& assembly, const PlannedStep& step) const {
  if (assembly.device_info().host_memory || assembly.device_infos().size() == 1) return false;
  std::vector<bool> on_host;
  for (const DeviceInfo& device : assembly.device_infos()) on_host.push_back(device.host_memory);
  return link_of(assembly.program(), plan_, step) >= 0 ||
         host_bytes(assembly.program(), plan_, step, on_host) > 0;
}

void KernelTimer::add(const Assembly& assembly, const PlannedStep& step, const Times& times, double share,
                      ByShape& by_shape) const {
  if (step.exchange || times.seconds.empty()) return;
  const Op& op = assembly.program().op(step.op);
  const OpShape shape = assembly.program().local_shape(op);
  const DeviceInfo& device = assembly.device_infos()[static_cast<std::size_t>(step.device)];
  KernelTime time{std::string(device.name.view()),
                  kernel_name(*op.def, shape),
                  element_type(shape),
                  shape_key(*op.def, shape),
                  op.cost(shape),
                  0};
  const auto weight = static_cast<double>(times.launches);
  auto& [entry, launches] = by_shape.try_emplace({time.device, time.shape}, time, 0).first->second;
  const bool over_link =
      step.device == 0 && !device.host_memory && link_of(assembly.program(), plan_, step) >= 0;
  entry.over_link = over_link && (launches == 0 || entry.over_link);
  entry.seconds +=
      weight * share *
      (moves_beside_others(assembly, step) ? fastest_mean(times.seconds) : trimmed_mean(times.seconds));
  launches += weight;
}

namespace {

// ------------------------------------------------------------------- kernel bench

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// After this time no further steps of a recipe are timed, if there were two.
constexpr double most_seconds = 30;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---------------------------------------------------------------- who computes beside it

// Holds further ranks, each on a thread, that take steps until they are stopped.
class Neighbours {
 public:
  Neighbours(const Recipe& recipe, const std::vector<SearchPlace>& places, std::int64_t count)
      : recipe_(recipe), places_(places) {
    for (std::int64_t i = 1; i <= count; ++i) threads_.emplace_back([this, i] { run(i); });
  }
  ~Neighbours() { stopped_ = true; }

  void wait_until_busy() const {
    while (busy_ < static_cast<std::int64_t>(threads_.size())) std::this_thread::yield();
  }
  // Throws what one of them has thrown.
  void stop() {
    stopped_ = true;
    threads_.clear();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void run(std::int64_t number) {
    bool counted = false;
    try {
      PluginHost plugins(places_);
      const Assembly assembly(recipe_, plugins, number % mesh_of(recipe_).world());
      Membership membership;
      membership.alone = true;
      Trainer trainer(assembly, plugins, membership);
      while (!stopped_) {
        trainer.step();
        if (!std::exchange(counted, true)) ++busy_;
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = std::current_exception();
      if (!counted) ++busy_;
    }
  }

  const Recipe& recipe_;
  const std::vector<SearchPlace>& places_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::int64_t> busy_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;  // must be last: they end first
};

// ---------------------------------------------------------------- the grid

// Writes the text that the models of the grid read: letters.
class LetterFile {
 public:
  LetterFile() : folder_(fs::temp_directory_path() / ("prun-bench-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    const RandomStream draw(1, stream_id("letters"));
    std::string text(std::size_t{1} << 17, ' ');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + draw.bits32(i) % 26);
    std::ofstream(folder_ / "letters.txt") << text;
  }
  ~LetterFile() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  LetterFile(const LetterFile&) = delete;
  LetterFile& operator=(const LetterFile&) = delete;

  std::string path() const { return (folder_ / "letters.txt").string(); }

 private:
  fs::path folder_;
};

struct GridModel {
  int hidden, heads, seq, micro, vocab;
};
constexpr GridModel grid[] = {
    {64, 2, 64, 2, 256}, {128, 2, 128, 2, 1024}, {256, 4, 256, 4, 256}, {384, 6, 256, 2, 4096}};
constexpr GridModel small_grid[] = {{64, 2, 64, 2, 1024}, {192, 3, 128, 2, 256}};

Recipe grid_recipe(const BaseFamily& family, const GridModel& model, const char* type,
                   const std::string& threads, const std::string& data, PluginHost& plugins) {
  std::string text = "[run]\nname = \"grid\"\nsteps = 100\n[model]\n" + std::string(family.model);
  const auto line = [&](const char* key, const std::string& value) { text += key + (" = " + value) + "\n"; };
  line("layers", "2");
  line("hidden", std::to_string(model.hidden));
  line("heads", std::to_string(model.heads));
  line("seq", std::to_string(model.seq));
  line("vocab", std::to_string(model.vocab));
  text += detail::concat("[data]\nplugin = \"", bytes_data, "\"\npath = \"", data, "\"\n[batch]\n");
  line("global", std::to_string(model.micro));
  line("micro", std::to_string(model.micro));
  text += "[optimizer]\n" + std::string(family.optimizer) + "lr = 1e-4\nclip = 1.0\n[precision]\n";
  line("compute", "\"" + std::string(type) + "\"");
  if (type == std::string("fp64")) line("state", "\"fp64\"");
  text += detail::concat("[device]\nplugin = \"", host_device, "\"\n");
  line("threads", threads);
  return Recipe::parse(text, "the grid", {}, plugins.catalog());
}

void bench_memory(CostTable& table, const Say& say) {
  if (table.host_gb_per_second) return;
  say("the host's memory");
  table.host_gb_per_second = host_bandwidth() / 1e9;
}

// Returns how many of `world` ranks have cores here.
std::int64_t at_once_here(const DeviceInfo& info, std::int64_t world) {
  return std::clamp<std::int64_t>(this_machine().cores / info.threads, 1, world);
}

struct GridPart {
  const char* type;
  const BaseFamily* family;
  const GridModel* model;
};

std::vector<GridPart> grid_parts(bool quick) {
  std::vector<GridPart> parts;
  for (const char* type : {"fp32", "bf16", "fp64"}) {
    if (quick && type == std::string_view("fp64")) continue;
    const bool all_sizes = !quick && type == std::string_view("fp32");
    for (const BaseFamily& family : grid_families)
      for (const GridModel& model : all_sizes ? std::span<const GridModel>(grid) : small_grid)
        parts.push_back({type, &family, &model});
  }
  return parts;
}

// Takes samples of one device, if it has none yet, and the fits that follow from them. A device that leaves
// cores free is one of several ranks' as a rule: as many compute beside it as the machine has cores for.
void bench_grid(PluginHost& plugins, const std::string& threads, const std::string& data, CostTable& table,
                const Say& say, bool quick) {
  const std::vector<GridPart> parts = grid_parts(quick);
  std::string name;
  std::int64_t at_once = 1;
  {
    const Recipe recipe = grid_recipe(grid_families[0], small_grid[0], "fp32", threads, data, plugins);
    const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
    DeviceInfo info;
    raise(device->info(&info));
    name = info.name.view();
    at_once = at_once_here(info, this_machine().cores);
    if (table.overheads.count(name) > 0) return;
    say(detail::concat("grid on ", name, ", ", parts.size(), " small models",
                       at_once > 1 ? detail::concat(", ", at_once, " at a time") : ""));
    table.overheads[name] = time_overheads(*device);
  }
  std::map<KernelKey, std::vector<KernelSample>> samples;
  PartsDone progress("grid on " + name, static_cast<int>(parts.size()), say);
  for (const GridPart& part : parts) {
    const Recipe recipe = grid_recipe(*part.family, *part.model, part.type, threads, data, plugins);
    for (const KernelTime& time : time_kernels(recipe, plugins, quick ? 2 : 3, at_once))
      samples[{time.op, time.type, time.device}].push_back({time.cost, time.seconds});
    progress.advance();
  }
  for (const auto& [key, list] : samples) table.kernels[key] = fit_kernel(list);
}

}  // namespace

std::vector<KernelTime> time_kernels(const Recipe& recipe, PluginHost& plugins, std::int64_t steps,
                                     std::int64_t at_once, std::int64_t rank) {
  Recipe fresh = without_ramp(recipe).with("run.resume", "");
  // No norm is beyond it: updates that are undone or put off tell nothing of their costs.
  if (fresh.number("optimizer.clip") > 0) fresh = fresh.with("optimizer.clip", "1e30");
  if (at_once > 1) fresh = unpinned(fresh);
  Neighbours neighbours(fresh, plugins.places(), at_once - 1);
  const Assembly assembly(fresh, plugins, rank);
  KernelTimer timer(assembly.plan(), steps);
  Membership membership;
  membership.alone = true;
  membership.full_steps = true;
  membership.probes = [&](const Assembly&, const Communicators*) { return std::vector<Probe*>{&timer}; };
  Trainer trainer(assembly, plugins, membership);
  trainer.step();
  neighbours.wait_until_busy();
  timer.forget();
  // Each pair is a step with each kernel by itself, and a step as usual.
  const auto pairs = [&trainer](std::int64_t count) { trainer.run(2 * count, [](const StepResult&) {}); };
  const Clock::time_point begin = Clock::now();
  pairs(1);
  const double left = most_seconds / std::max(seconds_since(begin), 1e-9) - 1;
  pairs(static_cast<std::int64_t>(std::clamp(left, 0.0, static_cast<double>(steps - 1))));
  neighbours.stop();
  return timer.result(assembly);
}

// Measures how long a thread that waited long enough to sleep takes to go on, as one does for an exchange;
// and how long a call without kernels takes.
Overheads time_overheads(DeviceInterface& device) {
  constexpr std::uint64_t rounds = 200, calls = 10000;
  Counter counters[2] = {0, 0};
  Ticket waiting(counters[0], false), working(counters[1], false);
  std::vector<Clock::time_point> signalled(rounds), resumed(rounds);
  {
    std::jthread waiter([&] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        working.await(i + 1);
        resumed[i] = Clock::now();
        waiting.publish(i + 1);
      }
    });
    for (std::uint64_t i = 0; i < rounds; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      signalled[i] = Clock::now();
      working.publish(i + 1);
      waiting.await(i + 1);
    }
  }
  std::vector<double> handoffs;
  for (std::uint64_t i = 0; i < rounds; ++i)
    handoffs.push_back(std::chrono::duration<double>(resumed[i] - signalled[i]).count());
  Queue queue = nullptr;
  raise(device.create_queue("bench", false, &queue));
  BoundWork nothing = nullptr;
  raise(device.bind(queue, nullptr, 0, &nothing));
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t i = 0; i < calls; ++i) {
    device.run(queue, nothing);
    working.publish(rounds + 1 + i);
  }
  const Overheads overheads{seconds_since(begin) / static_cast<double>(calls), trimmed_mean(handoffs)};
  raise(device.destroy_queue(queue));
  return overheads;
}

void bench_grid(PluginHost& plugins, CostTable& table, const Say& say, bool quick) {
  bench_memory(table, say);
  const LetterFile letters;
  if (quick) return bench_grid(plugins, "0", letters.path(), table, say, quick);
  PluginHost alone(plugins.places());
  for (PluginHost* host : {&alone, &plugins}) bench_grid(*host, "0", letters.path(), table, say, quick);
  bench_grid(alone, "1", letters.path(), table, say, quick);
}

namespace {

// Returns one rank of each stage: all others do the same as one of them.
std::vector<int> stages_of(const Recipe& recipe, PluginHost& plugins) {
  const Assembly assembly(recipe, plugins);
  if (!assembly.pipeline()) return {0};
  return assembly.mesh().group(0, assembly.pipeline()->axis);
}

// Keeps the times of kernels, and fits the time of any other copy over a device's link to its bytes, of
// whatever type: which tensors go over it changes with each setting.
class Measured {
 public:
  explicit Measured(CostTable& table) : table_(table) {}

  void take(const std::vector<KernelTime>& times) {
    for (const KernelTime& time : times) {
      table_.exact[{time.device, time.shape}] = time.seconds;
      if (time.over_link) copies_[time.device].push_back({time.cost, time.seconds});
    }
  }

  void fit_other_copies() const {
    for (const auto& [device, samples] : copies_)
      for (const DType type :
           {DType::f64, DType::f32, DType::bf16, DType::f16, DType::u16, DType::i32, DType::i64})
        table_.kernels[{"copy", type, device}] = fit_kernel(samples);
  }

 private:
  CostTable& table_;
  std::map<std::string, std::vector<KernelSample>> copies_;
};

// Ranks are timed together where each has a core, or a process if the device requires one.
bool are_timed_together(const DeviceInfo& device, std::int64_t world) {
  return world > 1 && (world <= this_machine().cores || device.one_process_each);
}

}  // namespace

void make_room_for_timing(const Recipe& recipe, PluginHost& plugins) {
  const Assembly assembly(recipe, plugins);
  const std::int64_t world = assembly.mesh().world();
  if (are_timed_together(assembly.device_info(), world) && !assembly.device_info().one_process_each)
    make_room_for_threads(assembly, plugins);
}

void bench_rank(PluginHost& plugins, const Recipe& recipe, std::int64_t rank, CostTable& table) {
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  const std::string name(info.name.view());
  if (table.overheads.count(name) == 0) table.overheads[name] = time_overheads(*device);
  Measured measured(table);
  measured.take(
      time_kernels(recipe, plugins, timed_steps / 2, at_once_here(info, mesh_of(recipe).world()), rank));
  measured.fit_other_copies();
}

void bench_recipe(PluginHost& plugins, const Recipe& recipe, CostTable& table, const Say& say,
                  const std::vector<std::string>& command) {
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  const std::string name(info.name.view());
  say("the recipe itself on " + name);
  if (Assembly(recipe, plugins).device_infos().size() > 1) bench_memory(table, say);
  const std::int64_t world = mesh_of(recipe).world();
  Measured measured(table);
  if (are_timed_together(info, world)) {
    const TimedLayout timed = time_layout(recipe, plugins.places(), timed_steps, command);
    measured.take(timed.kernels);
    for (const auto& [exchange, time] : timed.exchanges) table.exact_exchanges[exchange] = time;
    table.overheads[name] = timed.overheads;
    if (timed.steps < timed_steps)
      say(detail::concat("a step takes seconds, so each call was timed in ", timed.steps,
                         " steps and not in ", timed_steps));
  } else {
    table.overheads[name] = time_overheads(*device);
    const std::int64_t at_once = at_once_here(info, world);
    for (int rank : stages_of(recipe, plugins))
      measured.take(time_kernels(recipe, plugins, timed_steps / 2, at_once, rank));
  }
  measured.fit_other_copies();
}

}  // namespace prun
