// Measures seconds on the device.
#pragma once

#include "cuda/check.hpp"
#include "cuda/launch.hpp"

namespace prun::cuda {

class Stopwatch {
 public:
  explicit Stopwatch(Stream stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }
  ~Stopwatch() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Returns the seconds of one of `count` launches in a row; it waits for them.
  template <class Launch>
  double operator()(const Launch& launch, int count) const {
    check(cudaEventRecord(begin_, stream_), "an event");
    for (int i = 0; i < count; ++i) launch();
    check(cudaEventRecord(end_, stream_), "an event");
    check(cudaEventSynchronize(end_), "work that was tried");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "an event");
    return static_cast<double>(milliseconds) * 1e-3 / count;
  }

 private:
  Stream stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace prun::cuda
