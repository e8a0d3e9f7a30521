// Owns a queue of a device beside those of a plan.
#pragma once

#include <new>
#include <string_view>
#include <thread>

#include "execute/device_memory.hpp"

namespace prun {

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

  // Blocks the feeder until all that the queue was given is done, and raises what went wrong. It calls
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
