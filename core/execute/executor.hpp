// Runs a plan on a device: one thread a queue, each going through its own calls of a step. Everything is
// bound to addresses once, at construction; the loop waits, launches and signals, and neither allocates nor
// locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "plan/plan.hpp"
#include "prun/device.hpp"

namespace prun {

struct ExecutorOptions {
  // Fills bytes with NaN as soon as the plan says nobody reads them again, and looks after every kernel
  // whether it has left the plan's fences and those of the arena alone: for tests.
  bool poison = false;
  std::int64_t rank = 0;
};

// The communicator of a queue, or nothing.
struct QueueComm {
  CommInterface* comm = nullptr;
  Communicator communicator = nullptr;
};

// Told what a queue does, by the thread that feeds it: must neither allocate nor lock.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual void begin_call(std::int32_t queue, const Call& call, std::int64_t step) noexcept = 0;
  virtual void end_call(std::int32_t queue, const Call& call, std::int64_t step) noexcept = 0;
  // Around each of the call's waits, before begin_call.
  virtual void begin_wait(std::int32_t, const Call&, const Wait&, std::int64_t) noexcept {}
  virtual void end_wait(std::int32_t, const Call&, const Wait&, std::int64_t) noexcept {}
  // Whether kernels are launched one by one, with end_kernel after each; `index` counts within the call.
  virtual bool each_kernel() const noexcept { return false; }
  virtual void end_kernel(std::int32_t, const Call&, std::size_t /*index*/) noexcept {}
  // Within a call that communicates: whether its operations have been started and now wait for the others.
  virtual void waits(std::int32_t, bool /*waiting*/) noexcept {}
};

class Executor {
 public:
  // The program, plan, device, communicators (by queue) and probes must outlive it. The device needs memory
  // that the host can write, for staging.
  Executor(const Program& program, const Plan& plan, DeviceInterface& device, ExecutorOptions options,
           std::vector<QueueComm> comms = {}, std::vector<Probe*> probes = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  std::byte* arena() { return arena_; }
  // Address of a persistent value (parameter, gradient, state) of one instance.
  std::byte* address(Id value, std::int32_t instance);
  // Staged values of step `step`: inputs by microbatch, scalars with microbatch 0. The host may touch them
  // while the step does not run.
  std::byte* staged(Id value, std::int64_t step, std::int64_t microbatch);

  // Lets the queues run step 0, 1, 2, ... in turn.
  void start_step();
  // Holds the caller until the step that was started last is done; raises what went wrong in it.
  void finish_step();

 private:
  using Bytes = std::span<std::byte>;
  struct Bound {
    std::vector<Launch> launches;
    std::vector<CommOp> exchanges;  // of a queue that communicates, instead
    // By launch or exchange, only when poisoning.
    std::vector<std::vector<Bytes>> dead, fences;
  };
  struct BoundCall {
    const Bound* sides[2] = {nullptr, nullptr};
    const Call* call = nullptr;
    bool signals = false;
  };
  struct QueueRun {
    std::int32_t index = 0;
    Queue handle = nullptr;
    QueueComm comm;
    std::vector<BoundCall> calls;
    std::atomic<std::int64_t> finished{0};
    Status status;
    std::thread thread;
  };
  // What makes two calls' bound launches differ.
  using BindKey =
      std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t, int>;

  void allocate_arena();
  std::array<Bytes, 2> arena_fences() const;
  void bind_calls();
  const Bound* bind(const Call& call, int side);
  Bytes bytes_at(const Call& call, const Address& address, int side) const;
  Launch bind_step(const Call& call, const PlannedStep& step, int side);
  CommOp bind_exchange(const Call& call, const PlannedExchange& exchange, int side);
  void run_queue(QueueRun& queue);
  void run_step(QueueRun& queue, std::int64_t step);
  void await(QueueRun& queue, const Call& call, std::int64_t step);
  Status launch(QueueRun& queue, const Call& call, const Bound& bound);
  Status launch_poisoned(QueueRun& queue, const Call& call, const Bound& bound, std::size_t index);
  // An error where a kernel has written into one of these fences, or into the arena's.
  Status find_trespass(const Call& call, std::size_t index, const std::vector<Bytes>& fences) const;
  Status exchange(QueueRun& queue, const Bound& bound);
  std::uint64_t ticket(std::int32_t queue, std::int64_t step, std::int32_t position) const;
  void stop();

  const Program& program_;
  const Plan& plan_;
  DeviceInterface& device_;
  ExecutorOptions options_;
  std::vector<Probe*> probes_;
  bool each_kernel_ = false;
  Bytes memory_;  // the arena, between its fences when poisoning
  std::byte* arena_ = nullptr;
  std::map<BindKey, std::unique_ptr<Bound>> bound_;
  std::deque<std::vector<Tensor>> tensors_;  // operands of bound launches, stable addresses
  std::vector<std::unique_ptr<QueueRun>> queues_;
  std::atomic<std::int64_t> started_{0};  // steps the queues may run; negative: stop
  std::int64_t steps_ = 0;
};

}  // namespace prun
