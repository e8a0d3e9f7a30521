// A queue of the device cpu-async as its comm plugin meets it: work for later, and where its memory really
// is.
#pragma once

#include <functional>

namespace prun::async {

class Stream {
 public:
  // Runs after everything given before. What it throws is the queue's failure.
  virtual void enqueue(std::function<void()> work) = 0;
  // Memory of the device has addresses that nobody may touch; this is where its bytes are.
  virtual void* real(const void* address) = 0;

 protected:
  ~Stream() = default;
};

}  // namespace prun::async
