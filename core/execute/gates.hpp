// What holds the works of a call in their queue until all of them are there. Of what a device notes then,
// nothing is the host's time for the next launch.
//
// A device may not take all of a call while none of it runs: its queue has less room than it says, or a work
// waits for those before it as it is given. So a gate that stays closed is opened all the same: that call's
// times are less exact, and nobody waits for ever.
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
    std::uint64_t opens_at;  // the queue is to wait until the counter says so
  };
  // The queue's feeder calls this, and opens the gate before closing it again.
  Closed close(std::size_t queue);
  void open(std::size_t queue);

 private:
  void watch(std::stop_token stop);

  Counters opened_;
  std::vector<Counter> closed_;  // by queue: how often
  std::jthread watcher_;         // last: it ends first
};

}  // namespace prun
