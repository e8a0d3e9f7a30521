// SPDX-License-Identifier: Apache-2.0
// Plugin kind `device`: memory, queues and kernels. The executor feeds it; it decides nothing.
//
// A tier is a device that computes nothing: it stores bytes outside memory, and recipes name it by its
// plugin. It serves only Space::disk and only the kernel `copy`: its queues do nothing but copy between this
// storage and host memory, which others allocate. The addresses that it allocates only stand for stored
// bytes; reading or writing memory there should fail at once, where that is possible.
//
// A device is blocking or asynchronous. A queue of a blocking device runs work on the thread that launches
// it, and has a thread to itself. Queues of an asynchronous device take work and run it later, in order; one
// thread submits to all of them, in the order of the plan. They wait for each other by events, and for all
// other queues by counters: growing 64-bit numbers in pinned memory.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "prun/kernel.hpp"
#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

struct DeviceInfo {
  Text name;  // "cpu: 2 threads, avx512"
  Text kind;  // name that op plugins give for their kernels: "cpu", "cuda"
  // Names the option that affects the bits of results, with its value as in a recipe: `isa = "avx512"`. All
  // ranks must have the same. Empty: nothing about the device changes the bits.
  Text arithmetic;
  std::int32_t threads = 1;  // number of threads that KernelDef::workspace gets
  std::int64_t memory_bytes = 0;
  // Estimate what a rank's process needs for the device in addition to its allocations there: host memory,
  // and device memory (a driver's context, libraries).
  std::int64_t process_bytes = 0;
  std::int64_t process_device_bytes = 0;
  double peak_flops = 0;  // 0: unknown
  // The device is not on this machine: plans are made for a machine that has it, of which nothing else is
  // known.
  bool absent = false;
  bool host_memory = false;   // whether the host may read and write Space::device itself
  bool asynchronous = false;  // whether its queues take work and run it later
  // Number of items that such a queue takes before it blocks the submitting thread: a wait, a record, a
  // counter write, a stamp and each start() of a comm plugin count as one, a run() as its number of launches.
  // 0: any number.
  std::int64_t queue_depth = 0;
  // The device is a tier: memory_bytes is what this rank may store there; kind, threads and host_memory are
  // ignored.
  bool tier = false;
  // Ranks must be separate processes, not threads of one process.
  bool one_process_each = false;
  // Names the unit, such as a GPU, that no other rank may use; unique over all hosts: "GPU-4f21b0". Empty:
  // any rank may share the device.
  Text unit;
  // Number of units that this process can see, of which a rank takes one. 0: any number of ranks may share
  // the device.
  std::int32_t units = 0;
};

struct Launch {
  Kernel kernel = nullptr;
  KernelArgs args;
  Text op = {};
};

// Reports a device's power and clock, as means over about the last second. 0: unknown.
struct DeviceMeter {
  double watts = 0;      // power of this rank's part of the device
  double clock_mhz = 0;  // clock of its computing units
};

using Queue = void*;
using BoundWork = void*;
using QueueEvent = void*;
using Stamp = void*;
using Counter = std::atomic<std::uint64_t>;

// kernel() returns, before there is memory and without a driver, the kernel of an op and the most workspace
// that it needs. bind() then binds a call's launches to memory, once, into a piece of work that the device
// may prepare as it likes; the training loop runs that piece. run, record, wait, stamp and the calls on
// counters come from the one thread that submits to the queue. None of them allocates or locks; on an
// asynchronous device, they may block that thread while the queue is full.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() = 0;
  // Returns zeroed, resident memory aligned to 4096 bytes. Throws for a space that the device does not serve.
  virtual void* allocate(Space space, std::int64_t bytes) = 0;
  virtual void release(Space space, void* memory, std::int64_t bytes) = 0;
  // Copies from the host to Space::device (of a tier, Space::disk); download() copies back. Both take any
  // bytes of an allocation that no queue uses meanwhile. Any thread may call them.
  virtual void upload(void* device, const void* host, std::int64_t bytes) = 0;
  virtual void download(void* host, const void* device, std::int64_t bytes) = 0;
  // Zeroes bytes there, under the same conditions.
  virtual void clear(void* device, std::int64_t bytes) = 0;
  // Returns the bytes of Space::device in use, by any process, as the driver counts them. 0 means that they
  // are unknown, or that they are the host's.
  virtual std::int64_t memory_in_use() { return 0; }
  // Returns this device's kernel for an op, or null if there is none.
  virtual const KernelDef* kernel(std::string_view op) = 0;
  // Replaces several ops by ones that it has kernels for (prun/lowering.hpp), once strategies have written
  // the program and before it is planned. It is shown the functions that it runs. The numbers that a step
  // computes stay the same.
  virtual void lower(ProgramRef) {}

  // Creates a queue; `workers` says that it computes, rather than only copies.
  virtual Queue create_queue(std::string_view name, bool workers) = 0;
  // Ends a queue, which is empty or has failed.
  virtual void destroy_queue(Queue queue) = 0;
  // Makes this the driver's current device, for a thread on which comm plugins are to make their groups.
  virtual void make_current() {}
  // Tells the queue that the calling thread submits to it from now on.
  virtual void attach(Queue queue) = 0;
  // Prepares launches that the queue will run in this order, repeatedly: it may merge them, time
  // alternatives, cache plans. The launches, their operands and attributes outlive the work, which ends with
  // the queue. It is called while no step runs; an asynchronous device may overwrite the memory.
  virtual BoundWork bind(Queue queue, const Launch* launches, std::int64_t count) = 0;
  virtual void run(Queue queue, BoundWork work) = 0;
  // Returns, as lines, measured choices of bind() that bits depend on, for prefer() of another run.
  virtual std::string choices() { return {}; }
  // Takes such lines of another run, before anything is bound: bind() makes the same choices again where it
  // can, whatever it would measure today.
  virtual void prefer(std::string_view) {}

  // Announces, before queues are created, that this rank's queues will wait for things outside this device:
  // another rank, another device, a drive. From then on, work that waits in one queue must not keep work of
  // another queue from running, since it may wait for exactly that work. `copied_by_threads` says that host
  // threads carry communication by upload() and download() while queues work; nothing may delay these
  // either.
  virtual void waits_for_others(bool copied_by_threads) { static_cast<void>(copied_by_threads); }
  // Returns the latest samples: this call asks no driver and delays no queue. Any thread may call
  // it.
  virtual DeviceMeter meter() { return {}; }

  // Returns findings about this machine for `prun doctor`, one per line:
  // `good|what|found|mend`, with slow or broken in place of good; `mend` may be empty. It
  // throws if a run would.
  virtual std::string examine() { return {}; }

  // The functions below are for asynchronous devices only.

  // Returns the stream that comm plugins enqueue on, and that kernels get as KernelContext::stream.
  virtual void* stream(Queue) { return nullptr; }
  virtual QueueEvent create_event() { refuse(); }
  virtual void destroy_event(QueueEvent) { refuse(); }
  // Records the event after everything that the queue was given so far.
  virtual void record(Queue, QueueEvent) { refuse(); }
  // Makes the queue wait until the event as last recorded has been reached. It never waits for a later
  // record.
  virtual void wait(Queue, QueueEvent) { refuse(); }
  // Makes the queue write the counter once it has done everything given to it up to now.
  virtual void write_counter(Queue, Counter*, std::uint64_t) { refuse(); }
  // Makes the queue wait until the counter is at least that.
  virtual void wait_counter(Queue, const Counter*, std::uint64_t) { refuse(); }
  virtual Stamp create_stamp() { refuse(); }
  virtual void destroy_stamp(Stamp) { refuse(); }
  // Makes the queue record the time once it has done everything given to it up to now.
  virtual void stamp(Queue, Stamp) { refuse(); }
  // Returns the last time noted, in seconds of a clock that all stamps of the device share. Any thread may
  // call it once the queue has passed the stamp.
  virtual double read(Stamp) { refuse(); }
  // Throws the error of work that the queue has taken, if there was one. Any thread may call it.
  virtual void check(Queue) { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw_error(ErrorCode::internal, "a blocking device is used as an asynchronous one");
  }
};

class DeviceInterface {
 public:
  virtual Status info(DeviceInfo* info) noexcept = 0;
  virtual Status allocate(Space space, std::int64_t bytes, void** memory) noexcept = 0;
  virtual Status release(Space space, void* memory, std::int64_t bytes) noexcept = 0;
  virtual Status upload(void* device, const void* host, std::int64_t bytes) noexcept = 0;
  virtual Status download(void* host, const void* device, std::int64_t bytes) noexcept = 0;
  virtual Status clear(void* device, std::int64_t bytes) noexcept = 0;
  virtual Status memory_in_use(std::int64_t* bytes) noexcept = 0;
  virtual const KernelDef* kernel(Text op) noexcept = 0;
  virtual Status lower(const ProgramApi* api, void* program) noexcept = 0;
  virtual Status create_queue(Text name, bool workers, Queue* queue) noexcept = 0;
  virtual Status destroy_queue(Queue queue) noexcept = 0;
  virtual Status make_current() noexcept = 0;
  virtual Status attach(Queue queue) noexcept = 0;
  virtual Status bind(Queue queue, const Launch* launches, std::int64_t count, BoundWork* work) noexcept = 0;
  virtual Status run(Queue queue, BoundWork work) noexcept = 0;
  // The text is valid until the next call.
  virtual Status choices(Text* lines) noexcept = 0;
  virtual Status prefer(Text lines) noexcept = 0;
  // The text is valid until the next call.
  virtual Status examine(Text* lines) noexcept = 0;
  virtual Status stream(Queue queue, void** stream) noexcept = 0;
  virtual Status create_event(QueueEvent* event) noexcept = 0;
  virtual Status destroy_event(QueueEvent event) noexcept = 0;
  virtual Status record(Queue queue, QueueEvent event) noexcept = 0;
  virtual Status wait(Queue queue, QueueEvent event) noexcept = 0;
  virtual Status write_counter(Queue queue, Counter* counter, std::uint64_t value) noexcept = 0;
  virtual Status wait_counter(Queue queue, const Counter* counter, std::uint64_t value) noexcept = 0;
  virtual Status create_stamp(Stamp* stamp) noexcept = 0;
  virtual Status destroy_stamp(Stamp stamp) noexcept = 0;
  virtual Status stamp(Queue queue, Stamp stamp) noexcept = 0;
  virtual Status read(Stamp stamp, double* seconds) noexcept = 0;
  virtual Status check(Queue queue) noexcept = 0;
  virtual Status waits_for_others(bool copied_by_threads) noexcept = 0;
  virtual Status meter(DeviceMeter* meter) noexcept = 0;

 protected:
  ~DeviceInterface() = default;
};

template <class Author>
class DeviceAdapter final : public DeviceInterface {
 public:
  explicit DeviceAdapter(const Options& options) : author_(options) {}
  Status info(DeviceInfo* info) noexcept override {
    return guard([&] { *info = device().info(); });
  }
  Status allocate(Space space, std::int64_t bytes, void** memory) noexcept override {
    return guard([&] { *memory = device().allocate(space, bytes); });
  }
  Status release(Space space, void* memory, std::int64_t bytes) noexcept override {
    return guard([&] { device().release(space, memory, bytes); });
  }
  Status upload(void* to, const void* from, std::int64_t bytes) noexcept override {
    return guard([&] { device().upload(to, from, bytes); });
  }
  Status download(void* to, const void* from, std::int64_t bytes) noexcept override {
    return guard([&] { device().download(to, from, bytes); });
  }
  Status clear(void* memory, std::int64_t bytes) noexcept override {
    return guard([&] { device().clear(memory, bytes); });
  }
  Status memory_in_use(std::int64_t* bytes) noexcept override {
    return guard([&] { *bytes = device().memory_in_use(); });
  }
  const KernelDef* kernel(Text op) noexcept override { return device().kernel(op.view()); }
  Status lower(const ProgramApi* api, void* program) noexcept override {
    return guard([&] { device().lower(ProgramRef(api, program)); });
  }
  Status create_queue(Text name, bool workers, Queue* queue) noexcept override {
    return guard([&] { *queue = device().create_queue(name.view(), workers); });
  }
  Status destroy_queue(Queue queue) noexcept override {
    return guard([&] { device().destroy_queue(queue); });
  }
  Status make_current() noexcept override {
    return guard([&] { device().make_current(); });
  }
  Status attach(Queue queue) noexcept override {
    return guard([&] { device().attach(queue); });
  }
  Status bind(Queue queue, const Launch* launches, std::int64_t count, BoundWork* work) noexcept override {
    return guard([&] { *work = device().bind(queue, launches, count); });
  }
  Status run(Queue queue, BoundWork work) noexcept override {
    return guard([&] { device().run(queue, work); });
  }
  Status choices(Text* lines) noexcept override {
    return guard([&] {
      choices_ = device().choices();
      *lines = choices_;
    });
  }
  Status prefer(Text lines) noexcept override {
    return guard([&] { device().prefer(lines.view()); });
  }
  Status examine(Text* lines) noexcept override {
    return guard([&] {
      findings_ = device().examine();
      *lines = findings_;
    });
  }
  Status stream(Queue queue, void** stream) noexcept override {
    return guard([&] { *stream = device().stream(queue); });
  }
  Status create_event(QueueEvent* event) noexcept override {
    return guard([&] { *event = device().create_event(); });
  }
  Status destroy_event(QueueEvent event) noexcept override {
    return guard([&] { device().destroy_event(event); });
  }
  Status record(Queue queue, QueueEvent event) noexcept override {
    return guard([&] { device().record(queue, event); });
  }
  Status wait(Queue queue, QueueEvent event) noexcept override {
    return guard([&] { device().wait(queue, event); });
  }
  Status write_counter(Queue queue, Counter* counter, std::uint64_t value) noexcept override {
    return guard([&] { device().write_counter(queue, counter, value); });
  }
  Status wait_counter(Queue queue, const Counter* counter, std::uint64_t value) noexcept override {
    return guard([&] { device().wait_counter(queue, counter, value); });
  }
  Status create_stamp(Stamp* stamp) noexcept override {
    return guard([&] { *stamp = device().create_stamp(); });
  }
  Status destroy_stamp(Stamp stamp) noexcept override {
    return guard([&] { device().destroy_stamp(stamp); });
  }
  Status stamp(Queue queue, Stamp stamp) noexcept override {
    return guard([&] { device().stamp(queue, stamp); });
  }
  Status read(Stamp stamp, double* seconds) noexcept override {
    return guard([&] { *seconds = device().read(stamp); });
  }
  Status check(Queue queue) noexcept override {
    return guard([&] { device().check(queue); });
  }
  Status waits_for_others(bool copied_by_threads) noexcept override {
    return guard([&] { device().waits_for_others(copied_by_threads); });
  }
  Status meter(DeviceMeter* meter) noexcept override {
    return guard([&] { *meter = device().meter(); });
  }

 private:
  Device& device() { return author_; }
  Author author_;
  std::string choices_, findings_;
};

}  // namespace prun
