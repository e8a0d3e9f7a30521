#include "launch/remote_watch.hpp"

#include <algorithm>

namespace prun {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

std::int64_t nanoseconds(milliseconds time) { return std::chrono::nanoseconds(time).count(); }

}  // namespace

milliseconds heartbeat_interval(milliseconds limit) {
  return limit == 0ms ? 5s : std::clamp<milliseconds>(limit / 10, 50ms, 5s);
}

milliseconds longest_silence(milliseconds limit) {
  return std::max<milliseconds>(1s, 4 * heartbeat_interval(limit));
}

void RemoteWatch::take(int rank, FlightReport report, std::int64_t now_ns) {
  Told& told = ranks_[rank];
  told.at_ns = now_ns;
  told.doing = std::move(report.doing);
  told.flight.saved_ns = report.saved_ns < 0 ? 0 : now_ns - report.saved_ns;
  told.flight.stands_ns = report.stands_ns < 0 ? 0 : now_ns - report.stands_ns;
  told.flight.communicators = std::move(report.communicators);
  for (FlightCommunicator& communicator : told.flight.communicators)
    communicator.entered_ns = now_ns - communicator.entered_ns;
  const milliseconds limit(report.limit_ms);
  if (limit > 0ms && (limit_ == 0ms || limit < limit_)) limit_ = limit;
  if (report.stops && !stop_ns_) stop_ns_ = now_ns;
}

// A silent rank may have left since what it was inside of when it last reported.
std::vector<WatchedRank> RemoteWatch::watched(std::int64_t now_ns) const {
  const std::int64_t silence = nanoseconds(longest_silence(limit_));
  std::vector<WatchedRank> all;
  for (const Told& told : ranks_) {
    const bool silent = !told.ended && told.at_ns != 0 && now_ns - told.at_ns > silence;
    all.push_back({told.flight, told.ended, silent ? silent_text : nullptr});
    if (!silent) continue;
    for (FlightCommunicator& communicator : all.back().flight.communicators)
      communicator.entered = communicator.left;
  }
  return all;
}

std::optional<Hang> RemoteWatch::hang_in(const std::vector<WatchedRank>& all, std::int64_t now_ns) const {
  const milliseconds late = heartbeat_interval(limit_);
  if (stop_ns_ && now_ns - *stop_ns_ >= nanoseconds(still_limit_))
    if (auto stuck = find_stuck_at_stop(all, now_ns, still_limit_ + late)) return stuck;
  return limit_ == 0ms ? std::nullopt : find_hang(all, now_ns, limit_ + late);
}

std::optional<Hang> RemoteWatch::find(std::int64_t now_ns) {
  if ((limit_ == 0ms && !stop_ns_) || now_ns < next_look_ns_) return {};
  next_look_ns_ = now_ns + nanoseconds(heartbeat_interval(limit_));
  const std::vector<WatchedRank> all = watched(now_ns);
  std::optional<Hang> hang = hang_in(all, now_ns);
  if (!hang) return {};
  const auto culprit = static_cast<std::size_t>(hang->culprit);
  if (!ranks_[culprit].doing.empty())
    hang->reason +=
        (all[culprit].standstill ? "; when last heard of, " : "; ") + it_was(ranks_[culprit].doing);
  return hang;
}

}  // namespace prun
