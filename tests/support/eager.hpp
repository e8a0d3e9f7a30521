// Implements an asynchronous device that runs its queues' work at once, on the thread that gives it, and a
// comm plugin that enqueues on it. The submitter's order makes that sound. Kernels and exchanges do nothing:
// what is left is the cost of feeding. Neither allocates nor locks once work is bound.
#pragma once

#include <sys/mman.h>

#include <memory>

#include "plugin/guarded_plugin.hpp"

namespace prun::test {

class EagerDevice final : public Device {
 public:
  explicit EagerDevice(const Options&) {}

  DeviceInfo info() override {
    DeviceInfo info;
    info.name = "eager";
    info.kind = "cpu";
    info.asynchronous = true;
    return info;
  }
  void* allocate(Space, std::int64_t bytes) override {
    void* const memory = ::mmap(nullptr, static_cast<std::size_t>(bytes) + 1, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PRUN_CHECK(memory != MAP_FAILED, bytes, " bytes");
    return memory;
  }
  void release(Space, void* memory, std::int64_t bytes) override {
    ::munmap(memory, static_cast<std::size_t>(bytes) + 1);
  }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* device, std::int64_t bytes) override { upload(host, device, bytes); }
  void clear(void* device, std::int64_t bytes) override {
    std::memset(device, 0, static_cast<std::size_t>(bytes));
  }
  const KernelDef* kernel(std::string_view) override { return nullptr; }

  Queue create_queue(std::string_view, bool) override { return this; }
  void destroy_queue(Queue) override {}
  void attach(Queue) override {}
  BoundWork bind(Queue, const Launch*, std::int64_t) override { return this; }
  void run(Queue, BoundWork) override {}
  QueueEvent create_event() override { return this; }
  void destroy_event(QueueEvent) override {}
  void record(Queue, QueueEvent) override {}
  void wait(Queue, QueueEvent) override {}
  void write_counter(Queue, Counter* counter, std::uint64_t value) override { counter->store(value); }
  void wait_counter(Queue, const Counter* counter, std::uint64_t value) override {
    while (counter->load() < value) ::sched_yield();
  }
  Stamp create_stamp() override { return this; }
  void destroy_stamp(Stamp) override {}
  void stamp(Queue, Stamp) override {}
  double read(Stamp) override { return 0; }
  void check(Queue) override {}
};

class EagerComm final : public Comm {
 public:
  explicit EagerComm(const Options&) {}
  CommInfo info() override {
    CommInfo info;
    info.name = "eager";
    info.device_memory = info.enqueues = true;
    return info;
  }
  Communicator create(const CommGroup&) override { return this; }
  void destroy(Communicator) override {}
  void start(Communicator, const CommOp*, std::int64_t, void*) override {}
  void finish(Communicator) override {}
  void abort(Communicator) override {}
  CommCounters counters(Communicator) override { return {}; }
  CommNeeds needs(const CommOp&, std::int32_t, std::int32_t) override { return {}; }
};

// Calls a plugin as the core does: guarded.
template <class Interface, class Adapter>
std::shared_ptr<Interface> guarded_plugin(const char* name) {
  return std::make_shared<GuardedPlugin<Interface>>(name, std::make_shared<Adapter>(Options(OptionsApi{})));
}
inline std::shared_ptr<DeviceInterface> eager_device() {
  return guarded_plugin<DeviceInterface, DeviceAdapter<EagerDevice>>("device plugin 'eager'");
}
inline std::shared_ptr<CommInterface> eager_comm() {
  return guarded_plugin<CommInterface, CommAdapter<EagerComm>>("comm plugin 'eager'");
}

// Returns one for each queue of a plan that communicates.
inline std::vector<QueueComm> comms_of(const Plan& plan, CommInterface& comm) {
  std::vector<QueueComm> comms;
  for (const QueueInfo& queue : plan.queues)
    comms.push_back(queue.communicates() ? QueueComm{&comm, &comm, true} : QueueComm{});
  return comms;
}

}  // namespace prun::test
