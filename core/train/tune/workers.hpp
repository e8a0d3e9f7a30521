// The threads of this process, each with what it works with, over tasks by number.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace prun {

// Calls work(tool, number) for every number below `count`, on as many threads as there are tools. Raises what
// the task of the smallest number raised.
template <class Tool, class Work>
void on_all(std::vector<Tool>& tools, std::size_t count, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t failed = count;
  const auto run = [&](Tool& tool) {
    for (std::size_t number = next++; number < count; number = next++) {
      try {
        work(tool, number);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (number < failed) failed = number, error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < tools.size(); ++i) threads.emplace_back([&, i] { run(tools[i]); });
    run(tools.front());
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace prun
