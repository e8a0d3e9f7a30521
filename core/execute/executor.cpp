#include "execute/executor.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace prun {
namespace {

constexpr std::int64_t arena_fence = 4096;  // what memory is aligned to
constexpr std::byte untouched{0xa5};

template <class Fences>
void put_up(const Fences& fences) {
  for (const std::span<std::byte> fence : fences) std::fill(fence.begin(), fence.end(), untouched);
}

bool is_trampled(std::span<const std::byte> fence) {
  return std::any_of(fence.begin(), fence.end(), [](std::byte byte) { return byte != untouched; });
}

}  // namespace

Executor::Executor(const Program& program, const Plan& plan, DeviceInterface& device, ExecutorOptions options,
                   std::vector<QueueComm> comms, std::vector<Probe*> probes)
    : program_(program), plan_(plan), device_(device), options_(options), probes_(std::move(probes)) {
  DeviceInfo info;
  raise(device_.info(&info));
  if (!info.host_memory)
    throw_error(ErrorCode::unsupported, "device '", info.name.view(),
                "' has no memory that the host can write; this version stages batches there");
  allocate_arena();
  comms.resize(plan_.queues.size());
  for (std::size_t q = 0; q < plan_.queues.size(); ++q) {
    const QueueInfo& queue = plan_.queues[q];
    PRUN_CHECK((queue.axis >= 0) == (comms[q].comm != nullptr), "queue ", queue.name);
    queues_.push_back(std::make_unique<QueueRun>());
    queues_.back()->index = static_cast<std::int32_t>(q);
    queues_.back()->comm = comms[q];
    raise(device_.create_queue(queue.name, queue.workers, &queues_.back()->handle));
  }
  for (const Probe* probe : probes_) each_kernel_ |= probe->each_kernel();
  bind_calls();
  for (auto& queue : queues_) queue->thread = std::thread([this, &queue = *queue] { run_queue(queue); });
}

Executor::~Executor() {
  stop();
  for (auto& queue : queues_) device_.destroy_queue(queue->handle);
  device_.release(memory_.data(), static_cast<std::int64_t>(memory_.size()));
}

void Executor::allocate_arena() {
  const std::int64_t fence = options_.poison ? arena_fence : 0, bytes = plan_.layout.memory.total();
  void* memory = nullptr;
  raise(device_.allocate(bytes + 2 * fence, &memory));
  memory_ = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes + 2 * fence)};
  arena_ = memory_.data() + fence;
  if (options_.poison) put_up(arena_fences());
}

std::array<Executor::Bytes, 2> Executor::arena_fences() const {
  return {memory_.first(arena_fence), memory_.last(arena_fence)};
}

void Executor::stop() {
  started_.store(-1);
  started_.notify_all();
  for (auto& queue : queues_)
    if (queue->thread.joinable()) queue->thread.join();
}

// ---------------------------------------------------------------- binding

void Executor::bind_calls() {
  std::set<std::pair<std::int32_t, std::int32_t>> awaited;
  for (const Call& call : plan_.calls)
    for (const Wait& wait : call.waits) awaited.insert({wait.queue, wait.call});
  for (const Call& call : plan_.calls) {
    QueueRun& queue = *queues_[static_cast<std::size_t>(call.queue)];
    BoundCall bound;
    for (int side : {0, 1}) bound.sides[side] = bind(call, side);
    bound.call = &call;
    const bool last = call.position + 1 == plan_.queues[static_cast<std::size_t>(call.queue)].calls;
    bound.signals = last || awaited.count({call.queue, call.position}) != 0;
    queue.calls.push_back(bound);
  }
}

const Executor::Bound* Executor::bind(const Call& call, int side) {
  const PlannedFunction& function = plan_.functions[static_cast<std::size_t>(call.function)];
  const std::int32_t input = function.uses_batch ? call.microbatch
                             : function.uses_inputs
                                 ? call.microbatch % static_cast<std::int32_t>(plan_.input_slots)
                                 : -1;
  const BindKey key{call.function,
                    call.piece,
                    call.instance,
                    call.slot,
                    call.stub_slot,
                    input,
                    function.uses_batch ? side : 0};
  std::unique_ptr<Bound>& entry = bound_[key];
  if (entry) return entry.get();
  entry = std::make_unique<Bound>();
  for (const PlannedStep& step : plan_.steps(call)) {
    if (step.exchange)
      entry->exchanges.push_back(bind_exchange(call, *step.exchange, side));
    else
      entry->launches.push_back(bind_step(call, step, side));
    if (!options_.poison) continue;
    entry->dead.emplace_back();
    for (const Address& dead : step.dead_after) entry->dead.back().push_back(bytes_at(call, dead, side));
    entry->fences.emplace_back();
    for (const Fence& fence : step.fences) entry->fences.back().push_back(bytes_at(call, fence.bytes, side));
  }
  return entry.get();
}

Executor::Bytes Executor::bytes_at(const Call& call, const Address& address, int side) const {
  return {arena_ + plan_.resolve(call, address, side), static_cast<std::size_t>(address.bytes)};
}

Launch Executor::bind_step(const Call& call, const PlannedStep& step, int side) {
  std::vector<Tensor>& operands = tensors_.emplace_back();
  for (const PlannedOperand& operand : step.operands) {
    Tensor& tensor = operands.emplace_back();
    if (operand.value == none) continue;
    const std::vector<Dim> dims = program_.local_dims(operand.value);
    const std::vector<std::int64_t> starts = program_.starts(operand.value, options_.rank);
    tensor.data = arena_ + plan_.resolve(call, operand.address, side);
    tensor.dtype = program_.value(operand.value).dtype;
    tensor.rank = static_cast<std::int32_t>(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d) {
      tensor.dim[d] = dims[d].extent;
      tensor.start[d] = starts[d];
    }
  }
  Launch launch;
  launch.kernel = step.kernel;
  launch.args.operands = operands.data();
  launch.args.attrs = program_.op(step.op).attrs.data();
  launch.args.workspace = step.workspace.bytes ? arena_ + plan_.resolve(call, step.workspace, side) : nullptr;
  launch.args.layer = plan_.instances[static_cast<std::size_t>(call.instance)].layer;
  return launch;
}

CommOp Executor::bind_exchange(const Call& call, const PlannedExchange& exchange, int side) {
  CommOp op;
  op.kind = exchange.kind;
  op.reduction = exchange.reduction;
  op.dtype = exchange.dtype;
  op.peer = exchange.peer;
  if (exchange.in.bytes > 0) op.in = arena_ + plan_.resolve(call, exchange.in, side);
  if (exchange.out.bytes > 0) op.out = arena_ + plan_.resolve(call, exchange.out, side);
  op.count = exchange.count;
  op.peer = exchange.peer;
  return op;
}

// ---------------------------------------------------------------- addresses

std::byte* Executor::address(Id id, std::int32_t instance) {
  const Value& value = program_.value(id);
  Role role = value.role;
  if (role == Role::view) {
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    role = id == bucket.all_parameters || id == bucket.own_parameters ? Role::parameter : Role::gradient;
  }
  PRUN_CHECK(role == Role::parameter || role == Role::gradient || role == Role::state, "value '", value.name,
             "' is not persistent");
  const Region region = role == Role::parameter  ? Region::parameter
                        : role == Role::gradient ? Region::gradient
                                                 : Region::state;
  return arena_ +
         plan_.layout.instances[static_cast<std::size_t>(region)][static_cast<std::size_t>(instance)].base +
         plan_.offsets[id];
}

std::byte* Executor::staged(Id id, std::int64_t step, std::int64_t microbatch) {
  const Value& value = program_.value(id);
  PRUN_CHECK(value.role == Role::staging, "value '", value.name, "' is not staged");
  Call call;
  call.microbatch = static_cast<std::int32_t>(microbatch);
  const Region region = value.dims.empty() ? Region::scalars : Region::batch;
  return arena_ + plan_.resolve(call, {region, Whose::own, -1, plan_.offsets[id], value.bytes()},
                                static_cast<int>(step % 2));
}

// ---------------------------------------------------------------- running

void Executor::start_step() {
  started_.store(++steps_);
  started_.notify_all();
}

void Executor::finish_step() {
  for (auto& queue : queues_) {
    std::int64_t finished = queue->finished.load();
    while (finished < steps_) {
      queue->finished.wait(finished);
      finished = queue->finished.load();
    }
    raise(queue->status);
  }
}

std::uint64_t Executor::ticket(std::int32_t queue, std::int64_t step, std::int32_t position) const {
  return static_cast<std::uint64_t>(step * plan_.queues[static_cast<std::size_t>(queue)].calls + position +
                                    1);
}

void Executor::run_queue(QueueRun& queue) {
  queue.status = device_.attach(queue.handle);
  for (std::int64_t step = 0;; ++step) {
    std::int64_t started = started_.load();
    while (started >= 0 && started <= step) {
      started_.wait(started);
      started = started_.load();
    }
    if (started < 0) return;
    if (queue.status.ok()) run_step(queue, step);
    queue.finished.store(step + 1);
    queue.finished.notify_all();
  }
}

void Executor::run_step(QueueRun& queue, std::int64_t step) {
  const int side = static_cast<int>(step % 2);
  for (const BoundCall& bound : queue.calls) {
    const Call& call = *bound.call;
    await(queue, call, step);
    for (Probe* probe : probes_) probe->begin_call(queue.index, call, step);
    // A queue that has failed goes on handing out tickets, so that nobody waits for ever.
    if (queue.status.ok())
      queue.status =
          queue.comm.comm ? exchange(queue, *bound.sides[side]) : launch(queue, call, *bound.sides[side]);
    for (Probe* probe : probes_) probe->end_call(queue.index, call, step);
    if (bound.signals) device_.signal(queue.handle, ticket(queue.index, step, call.position));
  }
  if (queue.calls.empty()) return;
  const Status status =
      device_.host_wait(queue.handle, ticket(queue.index, step, queue.calls.back().call->position));
  if (!status.ok()) queue.status = status;
}

void Executor::await(QueueRun& queue, const Call& call, std::int64_t step) {
  for (const Wait& wait : call.waits) {
    if (step < wait.steps_ago) continue;
    for (Probe* probe : probes_) probe->begin_wait(queue.index, call, wait, step);
    device_.wait(queue.handle, queues_[static_cast<std::size_t>(wait.queue)]->handle,
                 ticket(wait.queue, step - wait.steps_ago, wait.call));
    for (Probe* probe : probes_) probe->end_wait(queue.index, call, wait, step);
  }
}

Status Executor::launch(QueueRun& queue, const Call& call, const Bound& bound) {
  if (!options_.poison && !each_kernel_)
    return device_.launch(queue.handle, bound.launches.data(),
                          static_cast<std::int64_t>(bound.launches.size()));
  for (std::size_t i = 0; i < bound.launches.size(); ++i) {
    const Status status = options_.poison ? launch_poisoned(queue, call, bound, i)
                                          : device_.launch(queue.handle, &bound.launches[i], 1);
    if (!status.ok()) return status;
    for (Probe* probe : probes_) probe->end_kernel(queue.index, call, i);
  }
  return {};
}

// Values that are alive at once never share a fence, and what a kernel is given no other queue writes: nobody
// else touches its fences meanwhile.
Status Executor::launch_poisoned(QueueRun& queue, const Call& call, const Bound& bound, std::size_t index) {
  put_up(bound.fences[index]);
  Status status = device_.launch(queue.handle, &bound.launches[index], 1);
  if (status.ok()) status = find_trespass(call, index, bound.fences[index]);
  for (const Bytes dead : bound.dead[index]) std::memset(dead.data(), 0xff, dead.size());
  return status;
}

Status Executor::find_trespass(const Call& call, std::size_t index, const std::vector<Bytes>& fences) const {
  const auto at = std::find_if(fences.begin(), fences.end(), is_trampled);
  const std::array<Bytes, 2> ends = arena_fences();
  const bool outside = std::any_of(ends.begin(), ends.end(), is_trampled);
  if (at == fences.end() && !outside) return {};
  const PlannedStep& step = plan_.steps(call)[index];
  const Op& op = program_.op(step.op);
  std::string where = "outside the arena";
  if (at != fences.end()) {
    const Fence& fence = step.fences[static_cast<std::size_t>(at - fences.begin())];
    where = detail::concat(fence.before ? "in front of " : "behind ",
                           fence.operand < 0
                               ? std::string("its workspace")
                               : detail::concat("its operand '", op.def->operands[fence.operand].name, "'"));
  }
  const Instance& instance = plan_.instances[static_cast<std::size_t>(call.instance)];
  return Status::failure(
      ErrorCode::bad_input,
      detail::concat("the kernel of op '", op.kind(), "' in layer ", instance.layer, " of '",
                     program_.segment(op.segment).name, "' wrote ", where, "; mend the kernel"));
}

Status Executor::exchange(QueueRun& queue, const Bound& bound) {
  for (std::size_t i = 0; i < bound.exchanges.size(); ++i) {
    Status status = queue.comm.comm->start(queue.comm.communicator, &bound.exchanges[i], 1, nullptr);
    if (!status.ok()) return status;
    for (Probe* probe : probes_) probe->waits(queue.index, true);
    status = queue.comm.comm->finish(queue.comm.communicator);
    for (Probe* probe : probes_) probe->waits(queue.index, false);
    if (!status.ok()) return status;
    if (options_.poison)
      for (const Bytes dead : bound.dead[i]) std::memset(dead.data(), 0xff, dead.size());
  }
  return {};
}

}  // namespace prun
