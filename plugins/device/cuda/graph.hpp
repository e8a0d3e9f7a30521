// Work on a stream, captured once and launched as one.
#pragma once

#include <functional>
#include <memory>

#include "cuda/launch.hpp"
#include "driver.hpp"

namespace prun::cuda {

class Graph {
 public:
  // What `work` enqueues on the stream is captured and does not run.
  Graph(Stream stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void run(Stream stream) const { check(cudaGraphLaunch(graph_, stream), "launching a graph"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace prun::cuda
