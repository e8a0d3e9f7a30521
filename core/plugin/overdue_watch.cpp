#include "plugin/overdue_watch.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/signals_blocked.hpp"
#include "base/thread.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// The call that a thread is in, and for how long this has been seen.
struct Seen {
  std::uint64_t number = 0;
  Clock::duration time{};
  bool told = false;
};

}  // namespace

OverdueWatch::OverdueWatch(std::chrono::milliseconds limit, Found found)
    : limit_(limit), found_(std::move(found)) {
  const SignalsBlocked blocked;
  thread_ = start_thread<std::jthread>("the watch over plugins",
                                       [this](const std::stop_token& stop) { run(stop); });
}

// Time in which the whole process was stopped does not count: the watch was as well.
void OverdueWatch::run(const std::stop_token& stop) const {
  std::vector<Seen> seen;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto nap = std::clamp<std::chrono::milliseconds>(limit_ / 10, 10ms, 1s);
  Clock::time_point last = Clock::now();
  while (!changed.wait_for(lock, stop, nap, [&] { return stop.stop_requested(); })) {
    const Clock::time_point now = Clock::now();
    const Clock::duration passed = std::min<Clock::duration>(now - std::exchange(last, now), 2 * nap);
    const std::vector<std::uint64_t> calls = calls_into_plugins();
    seen.resize(calls.size());
    for (std::size_t place = 0; place < calls.size(); ++place) {
      Seen& call = seen[place];
      call =
          call.number == calls[place] ? Seen{call.number, call.time + passed, call.told} : Seen{calls[place]};
      if (call.number == 0 || call.told || call.time < limit_) continue;
      call.told = true;
      found_(call_into_plugin(place));
    }
  }
}

}  // namespace prun
