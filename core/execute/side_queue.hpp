// A queue and memory of a device beside those of a plan.
#pragma once

#include <new>
#include <span>
#include <string_view>
#include <thread>

#include "prun/device.hpp"

namespace prun {

class SideMemory {
 public:
  SideMemory(DeviceInterface& device, Space space, std::int64_t bytes)
      : device_(device), space_(space), bytes_(bytes) {
    raise(device_.allocate(space_, bytes_, &memory_));
  }
  ~SideMemory() { device_.release(space_, memory_, bytes_); }
  SideMemory(const SideMemory&) = delete;
  SideMemory& operator=(const SideMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::span<std::byte> bytes() const { return {data(), static_cast<std::size_t>(bytes_)}; }

 private:
  DeviceInterface& device_;
  Space space_;
  std::int64_t bytes_;
  void* memory_ = nullptr;
};

class SideQueue {
 public:
  SideQueue(DeviceInterface& device, std::string_view name)
      : device_(device),
        counter_memory_(device, Space::pinned, sizeof(Counter)),
        counter_(*new (counter_memory_.data()) Counter(0)) {
    DeviceInfo info;
    raise(device_.info(&info));
    asynchronous_ = info.asynchronous;
    raise(device_.create_queue(name, false, &handle_));
    if (asynchronous_) raise(device_.stream(handle_, &stream_));
  }
  ~SideQueue() { device_.destroy_queue(handle_); }
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  // Called by the thread that feeds it from now on.
  void attach() { raise(device_.attach(handle_)); }
  bool asynchronous() const { return asynchronous_; }
  Queue handle() const { return handle_; }
  void* stream() const { return stream_; }

  // Holds the feeder until all that the queue was given is done, and raises what went wrong. `also`() is
  // asked meanwhile.
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
  SideMemory counter_memory_;
  Counter& counter_;  // how far the queue has come
  std::uint64_t given_ = 0;
  Queue handle_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace prun
