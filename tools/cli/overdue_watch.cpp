#include "cli/overdue_watch.hpp"

#include <sys/prctl.h>

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

// Holds a call that a thread is in, and since when this has been seen.
struct Seen {
  std::uint64_t number = 0;
  Clock::duration since{};
  bool told = false;
};

// Finds a call by its depth: a call goes on while one within it is seen. `calls` may contain some that have
// ended since; these are not seen again.
Seen* seen_again(std::vector<Seen>& calls, std::uint64_t number, Clock::duration now) {
  calls.resize(depth_of(number));
  if (number == 0) return nullptr;
  if (calls.back().number != number) calls.back() = {number, now};
  return &calls.back();
}

}  // namespace

OverdueWatch::OverdueWatch(std::chrono::milliseconds limit, Found found)
    : limit_(limit), found_(std::move(found)) {
  const SignalsBlocked blocked;
  thread_ = start_thread<std::jthread>("the watch over plugins",
                                       [this](const std::stop_token& stop) { run(stop); });
}

// Runs the watch. Time in which the whole process was stopped does not count: the watch was stopped as well.
void OverdueWatch::run(const std::stop_token& stop) const {
  ::prctl(PR_SET_NAME, "prun-watch");
  std::vector<std::vector<Seen>> seen;  // calls by place
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto nap = std::clamp<std::chrono::milliseconds>(limit_ / 10, 10ms, 1s);
  Clock::duration watched{};
  Clock::time_point last = Clock::now();
  while (!changed.wait_for(lock, stop, nap, [&] { return stop.stop_requested(); })) {
    const Clock::time_point now = Clock::now();
    watched += std::min<Clock::duration>(now - std::exchange(last, now), 2 * nap);
    const std::vector<std::uint64_t> calls = calls_into_plugins();
    seen.resize(calls.size());
    for (std::size_t place = 0; place < calls.size(); ++place) {
      Seen* const call = seen_again(seen[place], calls[place], watched);
      if (!call || call->told || watched - call->since < limit_) continue;
      const std::optional<PluginAndWhere> named = call_into_plugin(place, call->number);
      if (!named) continue;
      call->told = true;
      found_(*named);
    }
  }
}

}  // namespace prun
