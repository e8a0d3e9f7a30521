// Plugin kind `device`: memory, queues and kernels. The executor feeds it; it decides nothing.
#pragma once

#include "prun/kernel.hpp"
#include "prun/options.hpp"

namespace prun {

struct DeviceInfo {
  Text name;                 // "cpu: 2 threads, avx512"
  Text kind;                 // what op plugins name their kernels by: "cpu", "cuda"
  std::int32_t threads = 1;  // what KernelDef::workspace is asked with
  std::int64_t memory_bytes = 0;
  double peak_flops = 0;     // 0: not known
  bool host_memory = false;  // the host may read and write the device's memory itself
};

struct Launch {
  Kernel kernel = nullptr;
  KernelArgs args;
};

using Queue = void*;

// launch, signal and wait are called by the one thread that feeds the queue; none allocates or locks.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() = 0;
  // Zeroed, resident and aligned to 4096.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory, std::int64_t bytes) = 0;
  virtual void upload(void* device, const void* host, std::int64_t bytes) = 0;
  virtual void download(void* host, const void* device, std::int64_t bytes) = 0;
  // Null: this device has no such kernel.
  virtual const KernelDef* kernel(std::string_view op) = 0;

  // `workers`: this queue computes, rather than only copies.
  virtual Queue create_queue(std::string_view name, bool workers) = 0;
  virtual void destroy_queue(Queue queue) = 0;
  // Called by the feeding thread before its first launch.
  virtual void attach(Queue queue) = 0;
  virtual void launch(Queue queue, const Launch* launches, std::int64_t count) = 0;
  // A queue's tickets grow; wait() holds `queue` until `other` has reached the ticket.
  virtual void signal(Queue queue, std::uint64_t ticket) = 0;
  virtual void wait(Queue queue, Queue other, std::uint64_t ticket) = 0;
  // Holds the calling host thread.
  virtual void host_wait(Queue queue, std::uint64_t ticket) = 0;
};

class DeviceInterface {
 public:
  virtual Status info(DeviceInfo* info) noexcept = 0;
  virtual Status allocate(std::int64_t bytes, void** memory) noexcept = 0;
  virtual Status release(void* memory, std::int64_t bytes) noexcept = 0;
  virtual Status upload(void* device, const void* host, std::int64_t bytes) noexcept = 0;
  virtual Status download(void* host, const void* device, std::int64_t bytes) noexcept = 0;
  virtual const KernelDef* kernel(Text op) noexcept = 0;
  virtual Status create_queue(Text name, bool workers, Queue* queue) noexcept = 0;
  virtual Status destroy_queue(Queue queue) noexcept = 0;
  virtual Status attach(Queue queue) noexcept = 0;
  virtual Status launch(Queue queue, const Launch* launches, std::int64_t count) noexcept = 0;
  virtual Status signal(Queue queue, std::uint64_t ticket) noexcept = 0;
  virtual Status wait(Queue queue, Queue other, std::uint64_t ticket) noexcept = 0;
  virtual Status host_wait(Queue queue, std::uint64_t ticket) noexcept = 0;

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
  Status allocate(std::int64_t bytes, void** memory) noexcept override {
    return guard([&] { *memory = device().allocate(bytes); });
  }
  Status release(void* memory, std::int64_t bytes) noexcept override {
    return guard([&] { device().release(memory, bytes); });
  }
  Status upload(void* to, const void* from, std::int64_t bytes) noexcept override {
    return guard([&] { device().upload(to, from, bytes); });
  }
  Status download(void* to, const void* from, std::int64_t bytes) noexcept override {
    return guard([&] { device().download(to, from, bytes); });
  }
  const KernelDef* kernel(Text op) noexcept override { return device().kernel(op.view()); }
  Status create_queue(Text name, bool workers, Queue* queue) noexcept override {
    return guard([&] { *queue = device().create_queue(name.view(), workers); });
  }
  Status destroy_queue(Queue queue) noexcept override {
    return guard([&] { device().destroy_queue(queue); });
  }
  Status attach(Queue queue) noexcept override {
    return guard([&] { device().attach(queue); });
  }
  Status launch(Queue queue, const Launch* launches, std::int64_t count) noexcept override {
    return guard([&] { device().launch(queue, launches, count); });
  }
  Status signal(Queue queue, std::uint64_t ticket) noexcept override {
    return guard([&] { device().signal(queue, ticket); });
  }
  Status wait(Queue queue, Queue other, std::uint64_t ticket) noexcept override {
    return guard([&] { device().wait(queue, other, ticket); });
  }
  Status host_wait(Queue queue, std::uint64_t ticket) noexcept override {
    return guard([&] { device().host_wait(queue, ticket); });
  }

 private:
  Device& device() { return author_; }
  Author author_;
};

}  // namespace prun
