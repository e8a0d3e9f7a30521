// Holds memory that a device allocates, for as long as this lives.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <thread>

#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- device memory

class DeviceMemory {
 public:
  DeviceMemory(DeviceInterface& device, Space space, std::int64_t bytes)
      : device_(device), space_(space), bytes_(bytes) {
    raise(device.allocate(space, bytes, &memory_));
  }
  ~DeviceMemory() { device_.release(space_, memory_, bytes_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::span<std::byte> bytes() const { return {data(), static_cast<std::size_t>(bytes_)}; }

 private:
  DeviceInterface& device_;
  const Space space_;
  const std::int64_t bytes_;
  void* memory_ = nullptr;
};

// Holds memory of the host that a device copies from and to at full speed.
class Pinned : public DeviceMemory {
 public:
  Pinned(DeviceInterface& device, std::int64_t bytes) : DeviceMemory(device, Space::pinned, bytes) {}
};

// ------------------------------------------------------------------- owned handle
// Owns events and stamps of a device, for as long as these live.

template <class Handle, auto create, auto destroy>
class OwnedHandle {
 public:
  explicit OwnedHandle(DeviceInterface& device) : device_(device) { raise((device_.*create)(&handle_)); }
  ~OwnedHandle() { (device_.*destroy)(handle_); }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;

  Handle handle() const { return handle_; }

 private:
  DeviceInterface& device_;
  Handle handle_ = nullptr;
};

using OwnedEvent = OwnedHandle<QueueEvent, &DeviceInterface::create_event, &DeviceInterface::destroy_event>;
using OwnedStamp = OwnedHandle<Stamp, &DeviceInterface::create_stamp, &DeviceInterface::destroy_stamp>;

// ------------------------------------------------------------------- side queue
// Owns a queue of a device beside those of a plan.

class SideQueue {
 public:
  // `computes` says that it computes, rather than only copies.
  SideQueue(DeviceInterface& device, std::string_view name, bool computes = false)
      : device_(device),
        counter_memory_(device, sizeof(Counter)),
        counter_(*new (counter_memory_.data()) Counter(0)) {
    DeviceInfo info;
    raise(device_.info(&info));
    asynchronous_ = info.asynchronous;
    raise(device_.create_queue(name, computes, &handle_));
    if (asynchronous_) raise(device_.stream(handle_, &stream_));
  }
  ~SideQueue() { device_.destroy_queue(handle_); }
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  // Attaches the calling thread, which feeds the queue from now on.
  void attach() { raise(device_.attach(handle_)); }
  bool asynchronous() const { return asynchronous_; }
  Queue handle() const { return handle_; }
  void* stream() const { return stream_; }

  // Blocks the submitter until all that the queue was given is done, and raises what went wrong. It calls
  // `also`() meanwhile.
  template <class Also>
  void await(Also&& also) {
    if (!asynchronous_) return;
    raise(device_.write_counter(handle_, &counter_, ++given_));
    while (counter_.load() < given_) {
      raise(device_.check(handle_));
      also();
      std::this_thread::yield();
    }
  }
  void await() {
    await([] {});
  }

 private:
  DeviceInterface& device_;
  bool asynchronous_ = false;
  Pinned counter_memory_;
  Counter& counter_;  // how far the queue has come
  std::uint64_t given_ = 0;
  Queue handle_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace prun
