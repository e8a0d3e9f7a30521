// Captures work on a stream once and launches it as one.
#pragma once

#include <functional>
#include <memory>

#include "cuda/check.hpp"
#include "cuda/launch.hpp"

namespace prun::cuda {

// Marks a place in a stream.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Graph {
 public:
  // Captures what `work` enqueues on the stream; it does not run.
  Graph(Stream stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void run(Stream stream) const { check(cudaGraphLaunch(graph_, stream), "launching a graph"); }
  // Returns the number of nodes, each of which alone would be a command to the driver.
  std::int64_t nodes() const { return nodes_; }

 private:
  std::int64_t nodes_ = 0;
  cudaGraphExec_t graph_ = nullptr;
};

// Says whether `work` enqueues kernels on the stream and nothing else. They are captured and do not run.
bool enqueues_kernels_alone(Stream stream, const std::function<void()>& work);

}  // namespace prun::cuda
