// Shows a queue of the device cpu-async to its comm plugin, which gives it work for later and learns where
// its memory really is.
#pragma once

#include <functional>

namespace prun::async {

class Stream {
 public:
  // Runs the work after everything given before. An exception that it throws is the queue's failure.
  virtual void enqueue(std::function<void()> work) = 0;
  // Addresses of the device's memory must not be touched; this returns where its bytes are.
  virtual void* real(const void* address) = 0;

 protected:
  ~Stream() = default;
};

}  // namespace prun::async
