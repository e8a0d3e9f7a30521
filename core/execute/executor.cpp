#include "execute/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "execute/communicators.hpp"
#include "plugin/guarded_plugin.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- executor

std::vector<CommOp> operations_of(const QueueRun& queue) {
  std::vector<CommOp> ops;
  for (const BoundCall& bound : queue.calls)
    for (const BoundSide& side : bound.sides)
      ops.insert(ops.end(), side.piece->exchanges.begin(), side.piece->exchanges.end());
  return ops;
}

void prepare_exchanges(const QueueRun& queue, const Watchers& watchers) {
  for (const BoundCall& bound : queue.calls)
    for (const BoundSide& side : bound.sides)
      watchers.for_exchanges(*side.piece, [&](std::span<const CommOp> ops) {
        raise(queue.comm.comm->prepare(queue.comm.communicator, ops.data(),
                                       static_cast<std::int64_t>(ops.size()), queue.stream));
      });
}

}  // namespace

void ExchangeMemory::attach(const RankQueues& queues, const PlanMemory& memory, bool known,
                            const Watchers& watchers) {
  for (const std::size_t q : by_name(queues.plan().queues)) {
    QueueRun& queue = *queues.all()[q];
    if (!queue.comm.comm) continue;
    const std::vector<CommOp> ops = operations_of(queue);
    if (queue.comm.staged)
      attach_staging(queue, ops);
    else if (known)
      AttachedMemory::connect(queue.comm, ops, queue.stream);
    else
      attached_.attach(queue.comm, memory.of_device(), ops, queue.stream);
    if (queue.asynchronous) prepare_exchanges(queue, watchers);
  }
}

void ExchangeMemory::attach_staging(QueueRun& queue, const std::vector<CommOp>& ops) {
  queue.staging = &stagings_.emplace_back(queue.device, queue.info.name, ops, queue.comm.members);
  attached_.attach(queue.comm, queue.staging->memory(), queue.staging->operations(ops), nullptr);
}

namespace {

// Says whether two queues note times by the same clock: the host's, or a device's.
bool same_clock(const QueueRun& a, const QueueRun& b) {
  return a.asynchronous == b.asynchronous && (!a.asynchronous || &a.device == &b.device);
}

}  // namespace

// Returns the waits that a queue has noted of a step that is done, and forgets them.
std::vector<HeldUp> ExposedTimes::take_waits(QueueRun& queue, std::int64_t step) const {
  if (!watchers_.notes_waits(queue.info, step)) return {};
  std::vector<HeldUp>& noted = queue.held_up_in(step);
  std::vector<HeldUp> all = noted;
  noted.clear();
  for (const BoundCall& bound : queue.calls) {
    HeldUp held;
    auto stamp = bound.side(step).edges.begin();
    for (std::size_t i = 0; i <= bound.waits.size() && !bound.side(step).edges.empty(); ++i) {
      if (!is_edge(queues_.plan(), *bound.call, i)) continue;
      raise(queue.device.read(*stamp++, &held.end));
      if (held.by >= 0) all.push_back(held);
      held = {counted_wait(queues_.plan(), *bound.call, i), held.end, 0};
    }
  }
  return all;
}

// Waits of a queue with another clock than the computing queue count as communication: the two times cannot
// be compared.
double ExposedTimes::take(std::int64_t step) {
  std::vector<HeldUp> computing;
  Numbered<std::vector<HeldUp>> communicating(before_.size());
  const QueueRun* computes = nullptr;
  for (auto& queue : queues_.all()) {
    std::vector<HeldUp> waits = take_waits(*queue, step);
    if (queue->info.communicates()) {
      communicating[queue->index] = std::move(waits);
    } else if (!waits.empty()) {
      computes = queue.get();
      computing.insert(computing.end(), waits.begin(), waits.end());
    }
  }
  std::swap(before_, communicating);
  if (!computes) return 0;
  for (auto& queue : queues_.all()) {
    std::vector<HeldUp>& both = communicating[queue->index];
    const std::vector<HeldUp>& now = before_[queue->index];
    both.insert(both.end(), now.begin(), now.end());
    if (!same_clock(*queue, *computes)) both.clear();
  }
  return exposed_communication(computing, communicating);
}

namespace {

// Makes the host's wait for a device that runs its work later look like a call: a wait that gets no further
// is found as a plugin is that does not return.
class WaitForDevice {
 public:
  explicit WaitForDevice(const std::string& device) : device_(device) {}

  void is_at(std::uint64_t progress) {
    if (here_ && progress == seen_) return;
    seen_ = progress;
    here_.emplace(device_.c_str(), "while its queues work");
  }

 private:
  const std::string& device_;
  std::uint64_t seen_ = 0;
  std::optional<InPlugin> here_;
};

}  // namespace

Executor::Executor(const Program& program, const Plan& plan, const Devices& devices, ExecutorOptions options,
                   std::vector<QueueComm> comms, std::vector<Probe*> probes)
    : plan_(plan),
      depth_(plan.depth()),
      options_(options),
      watchers_(std::move(probes), options.measure_every),
      memory_(make_memory(program, plan, devices, options)),
      binding_(program, plan, memory_, options.rank, options.poison),
      counters_(keeper_of_counters(devices), plan.queues.size()),
      works_(watchers_, options.poison),
      queues_(plan),
      steps_(plan.staging_copies),
      late_probes_(queues_, steps_, watchers_),
      exposed_times_(queues_, watchers_),
      blocking_(queues_, steps_, watchers_, poison_, options.saves),
      submitter_(queues_, steps_, watchers_, gates_, options.saves) {
  if (options.poison) check_poison(devices);
  if (options.poison) poison_.emplace(program, plan, memory_);
  if (watchers_.each_kernel()) gates_.emplace(keeper_of_counters(devices), plan.queues.size());
  comms.resize(plan.queues.size());
  inform_devices(plan, devices, comms);
  queues_.create(devices, counters_, comms);
  bind();
  start_threads();
}

PlanMemory Executor::make_memory(const Program& program, const Plan& plan, const Devices& devices,
                                 const ExecutorOptions& options) {
  if (options.base_program) return PlanMemory(program, plan, *options.base_program);
  return PlanMemory(program, plan, devices, options.poison);
}

void Executor::bind() {
  queues_.bind(binding_);
  works_.bind_waits(queues_);
  works_.bind_works(queues_);
  exchange_memory_.attach(queues_, memory_, options_.base_program != nullptr, watchers_);
  if (!queues_.submitted().empty()) memory_.clear();  // trying the work has overwritten it
  works_.bind_stamps(queues_);
  late_probes_.set_clocks();
}

// Starts all threads or none: threads that run must not outlive what they use.
void Executor::start_threads() {
  try {
    blocking_.start();
    submitter_.start();
  } catch (const Error&) {
    stop();
    throw;
  }
}

Executor::~Executor() { stop(); }

// Stops the queues, which finish what they have been given.
void Executor::stop() {
  steps_.end();
  blocking_.join();
  submitter_.join();
  for (auto& queue : queues_.all())
    if (queue->asynchronous && steps_.started() > 0 && !queue->calls.empty())
      await(*queue, queue->last_ticket(steps_.started() - 1), steps_.started() - 1);
}

void Executor::start_step(Iteration iteration) { steps_.start(iteration); }

// Finishes a step: what goes wrong in the step behind it does not count as its own.
std::optional<double> Executor::finish_step() {
  const std::int64_t iteration = steps_.finish(), last = iteration + depth_;
  PRUN_CHECK(last < steps_.started(), "step ", steps_.run(iteration).step,
             " goes on until another one begins");
  bool done = true;
  for (auto& queue : queues_.all()) {
    if (!queue->calls.empty()) await(*queue, queue->last_ticket_of_step(iteration), last);
    done &= queue->is_done(iteration);
  }
  for (auto& queue : queues_.all())
    if (done ? queue->failed_by(last) : queue->has_failed()) raise(queue->status);
  late_probes_.report_progress();
  late_probes_.report_step(iteration);
  return exposed_communication(steps_.run(iteration).step);
}

std::optional<double> Executor::exposed_communication(std::int64_t step) {
  const auto communicates = [](const QueueInfo& queue) { return queue.communicates(); };
  if (!watchers_.measures() || std::none_of(plan_.queues.begin(), plan_.queues.end(), communicates))
    return {};
  const double seconds = exposed_times_.take(step);
  return watchers_.is_measured(step) ? std::optional(seconds) : std::nullopt;
}

void Executor::await(QueueRun& queue, std::uint64_t last, std::int64_t iteration) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::optional<WaitForDevice> wait;
  // A device that fails may not write any ticket: it must be asked. The next step has been started, so
  // nothing is lost if the end of this one is seen a little later; looking takes a core's time.
  while (queue.asynchronous && !queue.ticket.reached(last)) {
    Status status = queue.device.check(queue.handle);
    if (status.ok() && queue.comm.comm) status = queue.comm.comm->check(queue.comm.communicator);
    if (!status.ok()) queues_.fail(queue, status, iteration);
    late_probes_.report_progress();
    if (!wait) wait.emplace(queue.device_text);
    wait->is_at(queues_.tickets_written() + (options_.saves ? options_.saves->progress() : 0));
    std::this_thread::sleep_for(std::clamp<Clock::duration>(
        (Clock::now() - begin) / 64, std::chrono::microseconds(20), std::chrono::milliseconds(1)));
  }
  queue.ticket.await(last);
}

namespace {

// ------------------------------------------------------------------- loopback

void copy(const CommOp& op, std::int64_t from_block, std::int64_t to_block) {
  const auto bytes = static_cast<std::size_t>(op.count * size_of(op.dtype));
  std::memmove(static_cast<std::byte*>(op.out) + static_cast<std::size_t>(to_block) * bytes,
               static_cast<const std::byte*>(op.in) + static_cast<std::size_t>(from_block) * bytes, bytes);
}

template <class T>
void fill(T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(static_cast<float>(i * 40503 % 251 - 125) / 1000.0f);
}

void make_up(const CommOp& op) {
  if (op.dtype == DType::f64) fill(static_cast<double*>(op.out), op.count);
  if (op.dtype == DType::f32) fill(static_cast<float*>(op.out), op.count);
  if (op.dtype == DType::bf16) fill(static_cast<bf16*>(op.out), op.count);
  if (op.dtype == DType::f16) fill(static_cast<f16*>(op.out), op.count);
}

void loopback(const CommOp& op, std::int64_t members) {
  switch (op.kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter: return copy(op, 0, 0);
    case CommKind::all_gather:
      for (std::int64_t block = 0; block < members; ++block) copy(op, 0, block);
      return;
    case CommKind::all_to_all:
      for (std::int64_t block = 0; block < members; ++block) copy(op, block, block);
      return;
    case CommKind::broadcast:
    case CommKind::recv: return make_up(op);
    case CommKind::send:
    case CommKind::barrier: return;
  }
}

}  // namespace

Loopback::Loopback(const Plan& plan, const Mesh& mesh, std::int64_t rank) {
  for (const QueueInfo& queue : plan.queues)
    members_.push_back(static_cast<std::int64_t>(queue.members(mesh, rank).size()));
}

std::vector<QueueComm> Loopback::queues() {
  std::vector<QueueComm> queues(members_.size());
  for (std::size_t q = 0; q < queues.size(); ++q)
    if (members_[q] > 0) queues[q] = {this, &members_[q]};
  return queues;
}

Status Loopback::start(Communicator communicator, const CommOp* ops, std::int64_t count, void*) noexcept {
  for (std::int64_t i = 0; i < count; ++i) loopback(ops[i], *static_cast<const std::int64_t*>(communicator));
  return {};
}

Status Loopback::info(CommInfo* info) noexcept {
  *info = {};
  info->name = "echo";
  info->host_memory = true;
  return {};
}
Status Loopback::create(const CommGroup&, Communicator*) noexcept {
  return Status::failure(ErrorCode::unsupported, "an echo's communicators are made with it");
}
Status Loopback::destroy(Communicator) noexcept { return {}; }
Status Loopback::attach_memory(Communicator, void*, std::int64_t) noexcept { return {}; }
Status Loopback::detach_memory(Communicator) noexcept { return {}; }
Status Loopback::connect(Communicator, const CommOp*, std::int64_t, void*) noexcept { return {}; }
Status Loopback::prepare(Communicator, const CommOp*, std::int64_t, void*) noexcept { return {}; }
Status Loopback::finish(Communicator) noexcept { return {}; }
Status Loopback::abort(Communicator) noexcept { return {}; }
Status Loopback::counters(Communicator, CommCounters* counters) noexcept {
  *counters = {};
  return {};
}
Status Loopback::check(Communicator) noexcept { return {}; }
Status Loopback::needs(const CommOp&, std::int32_t, std::int32_t, CommNeeds* needs) noexcept {
  *needs = {};
  return {};
}

}  // namespace prun
