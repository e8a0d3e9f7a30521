// A queue of the device: a stream, and the work that was bound for it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "device_op.hpp"
#include "driver.hpp"

namespace prun::cuda {

// A launch, or some that were merged: who to name where it fails, and what to do.
struct NamedWork {
  std::string op;
  std::int64_t layer = 0;
  Work work;
};
using Piece = std::vector<NamedWork>;

class CudaQueue {
 public:
  // Made while the device is current. `waits`: an error is waited for after each op, so that it names the op.
  CudaQueue(std::string name, bool urgent, bool waits);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  Stream stream() const { return stream_; }
  // Stays where it is as long as the queue.
  Piece& add(Piece piece) { return *pieces_.emplace_back(std::make_unique<Piece>(std::move(piece))); }
  void run(const Piece& piece);
  // Asks the driver now and then only: whoever polls must not hold up whoever feeds.
  void check();

 private:
  using Clock = std::chrono::steady_clock;

  std::string name_;
  bool waits_;
  Stream stream_ = nullptr;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::atomic<Clock::rep> asked_{0};
};

}  // namespace prun::cuda
