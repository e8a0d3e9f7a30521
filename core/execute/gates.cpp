#include "execute/gates.hpp"

#include <chrono>

#include "base/thread.hpp"

namespace prun {
namespace {

// The watcher checks this often, and opens a gate that it has seen closed twice: this is many times what
// feeding a call takes.
constexpr std::chrono::milliseconds between{50};

// Opens a gate unless it has been opened meanwhile.
void open_once(Counter& opened, std::uint64_t times) {
  std::uint64_t before = times - 1;
  opened.compare_exchange_strong(before, times);
}

}  // namespace

Gates::Gates(DeviceInterface& device, std::size_t queues) : opened_(device, queues), closed_(queues) {
  watcher_ = start_thread<std::jthread>("the gates of queues", [this](std::stop_token stop) { watch(stop); });
}

Gates::Closed Gates::close(std::size_t queue) { return {&opened_[queue], ++closed_[queue]}; }

void Gates::open(std::size_t queue) { open_once(opened_[queue], closed_[queue]); }

void Gates::watch(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any sleeping;
  std::vector<std::uint64_t> seen(closed_.size());
  std::unique_lock lock(mutex);
  while (!sleeping.wait_for(lock, stop, between, [] { return false; }) && !stop.stop_requested())
    for (std::size_t q = 0; q < seen.size(); ++q) {
      const std::uint64_t closed = closed_[q];
      if (closed == seen[q] && closed > 0) open_once(opened_[q], closed);
      seen[q] = closed;
    }
}

}  // namespace prun
