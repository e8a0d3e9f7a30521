// Keeps the driver's channel of one stream from running full: the stream itself says how far it is.
#pragma once

#include <atomic>
#include <new>

#include "cuda/launch.hpp"
#include "driver.hpp"
#include "gpu_memory.hpp"
#include "room.hpp"

namespace prun::cuda {

class StreamRoom {
 public:
  // The driver must outlive it.
  explicit StreamRoom(const Driver& driver)
      : driver_(driver),
        done_memory_(sizeof(std::uint64_t)),
        done_(*new (done_memory_.data()) std::atomic<std::uint64_t>(0)) {}

  // Holds the caller until the driver takes so many more commands of this stream without holding it; calls
  // `pause()` again and again meanwhile. The stream must be the same each time.
  template <class Pause>
  void take(Stream stream, std::int64_t commands, Pause&& pause) {
    const auto mark = [&](std::uint64_t given) {
      driver_.check(driver_.write_value(stream, reinterpret_cast<CUdeviceptr>(&done_), given,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
                    "marking how far a queue is");
    };
    room_.take(
        commands, mark, [this] { return done_.load(std::memory_order_acquire); }, pause);
  }

 private:
  const Driver& driver_;
  PinnedRange done_memory_;
  std::atomic<std::uint64_t>& done_;  // counts the commands that are done
  Room room_;
};

}  // namespace prun::cuda
