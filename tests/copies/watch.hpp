// Ends a process that comes no further, and says on its standard error what stood still.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace prun::test {

class Watch {
 public:
  // Each thing that the process does may take `limit`. `who` begins the message, `state` ends it.
  Watch(std::string who, std::chrono::seconds limit, std::function<std::string()> state);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Says what is done from now on.
  void begins(const char* what);

 private:
  void run();

  const std::string who_;
  const std::chrono::seconds limit_;
  const std::function<std::string()> state_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  const char* what_ = "begins";
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace prun::test
