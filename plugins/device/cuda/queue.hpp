// A queue of the device: a stream, and the work that was bound for it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "device_op.hpp"
#include "driver.hpp"
#include "graph.hpp"

namespace prun::cuda {

// A launch, or some that were merged: who to name where it fails, and what to do.
struct NamedWork {
  std::string op;
  std::int64_t layer = 0;
  Work work;
  bool captures = true;  // may be part of a graph
};

// Works that follow each other, and the same as one graph, where that is the faster.
struct Stretch {
  std::vector<NamedWork> works;
  std::unique_ptr<Graph> graph;
};
// The work of a call.
using Piece = std::vector<Stretch>;

class CudaQueue {
 public:
  struct Settings {
    bool urgent;  // its work goes before that of others
    bool waits;   // for each op, so that an error names it
    bool graphs;  // may be used
  };
  // Made while the device is current.
  CudaQueue(std::string name, const Settings& settings);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  Stream stream() const { return stream_; }
  // Stays where it is as long as the queue.
  Piece& add(std::vector<NamedWork> works);
  void run(const Piece& piece);
  // Asks the driver now and then only: whoever polls must not hold up whoever feeds.
  void check();

 private:
  using Clock = std::chrono::steady_clock;

  void run(const Stretch& stretch);
  void run_works(const Stretch& stretch);
  // Of a run, as seen by the host, when several follow each other.
  double seconds(const Stretch& stretch);
  void consider_graph(Stretch& stretch);
  void load(Stretch& stretch);

  std::string name_;
  Settings settings_;
  Stream stream_ = nullptr;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::atomic<Clock::rep> asked_{0};
};

}  // namespace prun::cuda
