// Keeps the samples of a device over about the last second, and averages them.
#pragma once

#include <cstddef>
#include <deque>

#include "prun/device.hpp"

namespace prun::cuda {

struct PowerSample {
  double seconds = 0;  // reads any clock that grows
  double joules = 0;   // counts the energy drawn since some moment
  double clock_mhz = 0;
};

class MeterWindow {
 public:
  explicit MeterWindow(std::size_t samples) : most_(samples) {}

  void add(const PowerSample& sample) {
    samples_.push_back(sample);
    if (samples_.size() > most_) samples_.pop_front();
  }

  // A single sample says nothing of power.
  DeviceMeter means() const {
    DeviceMeter meter;
    if (samples_.size() < 2) return meter;
    const PowerSample &first = samples_.front(), &last = samples_.back();
    if (last.seconds <= first.seconds || last.joules < first.joules) return meter;
    meter.watts = (last.joules - first.joules) / (last.seconds - first.seconds);
    for (const PowerSample& sample : samples_)
      meter.clock_mhz += sample.clock_mhz / static_cast<double>(samples_.size());
    return meter;
  }

 private:
  std::size_t most_;
  std::deque<PowerSample> samples_;
};

}  // namespace prun::cuda
