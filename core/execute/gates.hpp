// Holds the works of a call back in their queue until all of them are there: then the times that a device
// notes contain nothing of the host's time for the next launch.
//
// A device may not take all of a call while none of it runs: its queue has less room than it says, or a work
// waits for those before it as it is given. So a gate that stays closed is opened all the same: that call's
// times are less exact, and no queue waits for ever.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "execute/counters.hpp"

namespace prun {

class Gates {
 public:
  // Makes one gate for each queue.
  Gates(DeviceInterface& device, std::size_t queues);

  struct Closed {
    const Counter* counter;
    std::uint64_t opens_at;  // counter value that the queue waits for
  };
  // The queue's feeder calls this, and opens the gate before closing it again.
  Closed close(std::size_t queue);
  void open(std::size_t queue);

 private:
  void watch(std::stop_token stop);

  Counters opened_;
  std::vector<Counter> closed_;  // how often each queue's gate was closed
  std::jthread watcher_;         // declared last, so that it ends first
};

}  // namespace prun
