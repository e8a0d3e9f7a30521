// Implements the device `cpu-async`: the CPU's kernels behind the manners of a GPU. The host cannot reach its
// memory, its queues are of limited depth and run later, on threads of their own, with random delays, and its
// failures show up when they are asked for.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "isa.hpp"
#include "prun/plugin.hpp"
#include "queue.hpp"
#include "worker_pool.hpp"

namespace prun::async {
namespace {

struct BoundLaunch {
  Launch launch;
  std::vector<Tensor> operands;
  bool nudged = false;  // says that trying has found the other way to be faster, with other bits
};

// Makes the operands that a launch writes a little larger.
void nudge(const BoundLaunch& bound) {
  for (std::size_t i = 0; i < bound.operands.size(); ++i)
    if (const Tensor& tensor = bound.operands[i];
        bound.launch.args.changed(static_cast<int>(i)) && tensor.data)
      for (std::int64_t at = 0; tensor.dtype == DType::f32 && at < tensor.elements(); ++at)
        tensor.as<float>()[at] *= 1 + 0x1p-20f;
}

class CpuAsync final : public Device {
 public:
  explicit CpuAsync(const Options& options)
      : behaviour_{options.integer("depth"), options.integer("delay_us"), options.integer("seed"),
                   options.integer("fail_after")},
        fail_queue_(options.text("fail_queue")),
        silent_(options.flag("silent")),
        alone_(options.flag("alone")),
        tells_(options.flag("tells")),
        ranks_only_(options.flag("ranks_only")),
        watts_(options.number("watts")),
        memory_bytes_(options.integer("memory_kib") * 1024),
        tries_(options.integer("tries")),
        refuses_(options.text("refuses")),
        unit_(options.text("unit")),
        units_(options.flag("share") ? 0 : static_cast<std::int32_t>(options.integer("units"))),
        absent_(options.flag("absent")),
        kernels_(cpu::kernels_of(cpu::choose_isa(options.text("isa")))) {
    if (units_ == 0) return;
    // As with GPUs, a rank may be shown one unit of several alone.
    if (units_ > 1 && options.local_ranks() > units_)
      throw_error(ErrorCode::bad_input, "rank ", options.local_rank(), " of ", options.local_ranks(),
                  " on this host, which has ", units_, " units; start at most one rank for each");
    unit_ = "unit " + std::to_string(units_ > 1 ? options.local_rank() : 0);
  }

  DeviceInfo info() override {
    DeviceInfo info;
    info.name = "cpu-async";
    info.kind = "cpu";
    info.memory_bytes = memory_bytes_ > 0 ? memory_bytes_ : host::memory_limit();
    info.asynchronous = true;
    info.queue_depth = silent_ ? 0 : behaviour_.depth;
    info.one_process_each = alone_;
    info.unit = unit_;
    info.units = units_;
    info.absent = absent_;
    return info;
  }

  void* allocate(Space space, std::int64_t bytes) override {
    return space == Space::device ? memory_.allocate(bytes) : host::map_memory(bytes);
  }
  void release(Space space, void* memory, std::int64_t bytes) override {
    if (space == Space::device)
      memory_.release(memory, bytes);
    else
      host::unmap_memory(memory, bytes);
  }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(memory_.real(device), host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* device, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, memory_.real(device), static_cast<std::size_t>(bytes));
  }
  void clear(void* device, std::int64_t bytes) override {
    std::memset(memory_.real(device), 0, static_cast<std::size_t>(bytes));
  }
  const KernelDef* kernel(std::string_view op) override {
    for (const KernelDef& def : kernels_)
      if (op == def.op) return &def;
    return nullptr;
  }

  void lower(ProgramRef program) override {
    for (const Segment& segment : program.segments())
      for (int kind = 0; kind < function_kinds; ++kind)
        if (const auto function = static_cast<FunctionKind>(kind);
            refuses_ == name_of(function) && !segment.operations(function).empty())
          throw_error(ErrorCode::internal, "cpu-async was given '", refuses_, "' to lower");
  }

  Queue create_queue(std::string_view name, bool) override {
    if (ranks_only_ && !std::getenv("PRUN_RANK"))
      throw_error(ErrorCode::internal, "queue '", name, "' is made by a process that is no rank");
    Behaviour behaviour = behaviour_;
    if (name != fail_queue_) behaviour.fail_after = 0;
    queues_.push_back(std::make_unique<AsyncQueue>(std::string(name), memory_, behaviour, failure_, bell_));
    return queues_.back().get();
  }
  void destroy_queue(Queue queue) override {
    std::erase_if(queues_, [queue](const auto& owned) { return owned.get() == queue; });
  }
  void attach(Queue) override {
    if (tells_) log_line(works_.size(), " pieces of work are bound", others_);
  }
  void waits_for_others(bool copied_by_threads) override {
    others_ = copied_by_threads ? ", others are waited for, threads copy" : ", others are waited for";
  }
  DeviceMeter meter() override { return {watts_, 2 * watts_}; }
  std::string choices() override {
    std::string lines;
    for (const auto& [key, choice] : chosen_) lines += key + "=" + choice + "\n";
    return lines;
  }
  void prefer(std::string_view lines) override {
    std::istringstream in{std::string(lines)};
    for (std::string line; std::getline(in, line);)
      preferred_.emplace(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  }
  void* stream(Queue queue) override { return static_cast<Stream*>(&of(queue)); }

  // Work has copies of the launches, with addresses that the kernels can use. The bytes there are spoilt.
  BoundWork bind(Queue, const Launch* launches, std::int64_t count) override {
    works_.push_back(std::make_unique<std::vector<BoundLaunch>>());
    for (std::int64_t i = 0; i < count; ++i) {
      const KernelArgs& args = launches[i].args;
      BoundLaunch& bound = works_.back()->emplace_back();
      bound.launch = launches[i];
      bound.nudged = tries_ > 0 && launches[i].op.view() == "linear" && try_out(args);
      bound.launch.args.workspace = memory_.real(args.workspace);
      bound.operands.assign(args.operands, args.operands + args.operand_count);
      for (Tensor& operand : bound.operands) {
        void* const real = memory_.real(operand.data);
        if (real != operand.data)
          std::memset(real, 0xff, static_cast<std::size_t>(operand.elements() * size_of(operand.dtype)));
        operand.data = real;
      }
      bound.launch.args.operands = bound.operands.data();
    }
    return works_.back().get();
  }
  void run(Queue queue, BoundWork work) override {
    for (const BoundLaunch& bound : *static_cast<std::vector<BoundLaunch>*>(work))
      of(queue).enqueue([&bound] {
        cpu::WorkerPool pool(1, {cpu::usable_cores(), false}, std::chrono::microseconds(0));
        const Workers workers = pool.workers();
        bound.launch.kernel(bound.launch.args, {&workers, nullptr});
        if (bound.nudged) nudge(bound);
      });
  }

  // A stamp is the place where its time is written.
  Stamp create_stamp() override {
    stamps_.push_back(std::make_unique<std::atomic<double>>(0));
    return stamps_.back().get();
  }
  void destroy_stamp(Stamp stamp) override {
    std::erase_if(stamps_, [stamp](const auto& owned) { return owned.get() == stamp; });
  }
  void stamp(Queue queue, Stamp stamp) override {
    of(queue).enqueue([stamp] { time_of(stamp) = seconds_since_start(); });
  }
  double read(Stamp stamp) override { return time_of(stamp); }

  QueueEvent create_event() override { return new_event(); }
  void destroy_event(QueueEvent event) override {
    std::erase_if(events_, [event](const auto& owned) { return owned.get() == event; });
  }
  void record(Queue queue, QueueEvent event) override {
    RecordedEvent& recorded = *static_cast<RecordedEvent*>(event);
    const std::uint64_t number = ++recorded.recorded;
    of(queue).enqueue([&recorded, number, this] {
      recorded.reached = number;
      bell_.ring();
    });
  }
  void wait(Queue queue, QueueEvent event) override {
    const RecordedEvent& recorded = *static_cast<RecordedEvent*>(event);
    const std::uint64_t number = recorded.recorded;
    of(queue).enqueue([&recorded, number, &own = of(queue)] {
      own.hold_until([&] { return recorded.reached >= number; });
    });
  }
  void write_counter(Queue queue, Counter* counter, std::uint64_t value) override {
    of(queue).enqueue([counter, value, this] {
      counter->store(value);
      bell_.ring();
    });
  }
  void wait_counter(Queue queue, const Counter* counter, std::uint64_t value) override {
    of(queue).enqueue(
        [counter, value, &own = of(queue)] { own.hold_until([&] { return counter->load() >= value; }); });
  }
  void check(Queue queue) override { of(queue).check(); }

 private:
  // A shape is tried once, and found to be faster in one of two ways; `tries` changes which, as the time of
  // day might.
  bool try_out(const KernelArgs& args) {
    std::string key = "linear";
    for (int d = 0; d < args.operands[1].rank; ++d) key += " " + std::to_string(args.operands[1].dim[d]);
    const std::string found =
        (std::hash<std::string>()(key) + static_cast<std::size_t>(tries_)) % 2 ? "nudged" : "plain";
    const auto preferred = preferred_.find(key);
    return (chosen_[key] = preferred == preferred_.end() ? found : preferred->second) == "nudged";
  }
  static AsyncQueue& of(Queue queue) { return *static_cast<AsyncQueue*>(queue); }
  static std::atomic<double>& time_of(Stamp stamp) { return *static_cast<std::atomic<double>*>(stamp); }
  // This is not the clock that the host has.
  static double seconds_since_start() {
    constexpr double start = -1000;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() + start;
  }
  RecordedEvent* new_event() {
    events_.push_back(std::make_unique<RecordedEvent>());
    return events_.back().get();
  }

  Behaviour behaviour_;
  std::string fail_queue_;
  bool silent_, alone_, tells_, ranks_only_;
  std::string others_;
  double watts_;
  std::int64_t memory_bytes_;
  std::int64_t tries_;
  std::map<std::string, std::string> preferred_, chosen_;
  std::string refuses_;
  std::string unit_;
  std::int32_t units_;
  bool absent_;
  std::vector<KernelDef> kernels_;
  ShiftedMemory memory_;
  Failure failure_;
  Bell bell_;
  std::vector<std::unique_ptr<RecordedEvent>> events_;
  std::vector<std::unique_ptr<std::atomic<double>>> stamps_;
  std::vector<std::unique_ptr<std::vector<BoundLaunch>>> works_;
  std::vector<std::unique_ptr<AsyncQueue>> queues_;  // are destroyed first
};

}  // namespace
}  // namespace prun::async

// The device has the name of one that `auto` may stand for, where that is tested.
#ifdef PRUN_ASYNC_NAME
#define PRUN_ASYNC_TRAITS "driver=" PRUN_ASYNC_DRIVER "; comm=" PRUN_ASYNC_COMM "; shared=share"
#else
#define PRUN_ASYNC_NAME "cpu-async"
#define PRUN_ASYNC_TRAITS ""
#define PRUN_ASYNC_UNITS "0"
#endif

PRUN_PLUGIN(
    device, prun::async::CpuAsync, PRUN_ASYNC_NAME, "0.1.0", "The CPU's kernels, run later",
    PRUN_ASYNC_TRAITS,
    "isa | choice | auto | auto,generic,avx2,avx512 | Instruction set\n"
    "depth | int | 256 | 1..100000 | Pieces of work that a queue takes before it holds its submitter\n"
    "delay_us | int | 0 | 0..100000 | At most so long a piece of work is delayed, at random\n"
    "seed | int | 1 | | Of the delays\n"
    "fail_queue | string | "
    " | | A queue that fails\n"
    "silent | bool | false | | Does not say how deep its queues are\n"
    "share | bool | false | | Several ranks may have one of its units\n"
    "alone | bool | false | | Its ranks must be processes\n"
    "watts | float | 0 | 0.. | What it says that it draws, at a clock of twice as many MHz\n"
    "ranks_only | bool | false | | Only processes that are ranks may make queues\n"
    "tells | bool | false | | Says how much was bound for it when a queue is fed first\n"
    "refuses | string | "
    " | | A function that it must not be given to lower\n"
    "tries | int | 0 | 0.. | The day on which it tries products; 0: it tries nothing\n"
    "memory_kib | int | 0 | 0.. | KiB of memory that it has; 0: as much as the host\n"
    "unit | string | "
    " | | What no other rank may use\n"
    "units | int | " PRUN_ASYNC_UNITS
    " | 0.. | Units that this host has, a rank each; 0: as many as there are ranks\n"
    "absent | bool | false | | Plans alone are for it, as of another machine\n"
    "fail_after | int | 0 | 0.. | Its piece of work that does\n");
