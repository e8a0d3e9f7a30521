// Measures the power that a GPU draws: a thread of its own asks NVIDIA's management library now and then.
// Where the library is not there, or does not know, nothing is known.
#pragma once

#include <mutex>
#include <thread>

#include "meter_window.hpp"

namespace prun::cuda {

class PowerMeter {
 public:
  explicit PowerMeter(int ordinal);  // the number is the CUDA runtime's

  // With `sharers` ranks on the GPU, each has an equal part of what it draws.
  DeviceMeter read(int sharers) const;

 private:
  void sample(std::stop_token stop, int ordinal);

  mutable std::mutex mutex_;
  DeviceMeter now_;
  std::jthread thread_;  // the last member: it ends before what it writes
};

}  // namespace prun::cuda
