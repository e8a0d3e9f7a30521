#include "launch/hang_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- hang watch

struct Waiting {
  int rank = -1;
  const FlightCommunicator* in = nullptr;
};

// Returns the collective that the rank has been inside for longest.
const FlightCommunicator* longest_inside(const FlightSnapshot& flight) {
  const FlightCommunicator* found = nullptr;
  for (const FlightCommunicator& communicator : flight.communicators)
    if (communicator.inside() && (!found || communicator.entered_ns < found->entered_ns))
      found = &communicator;
  return found;
}

bool has_entered(const WatchedRank& rank, const FlightCommunicator& collective) {
  for (const FlightCommunicator& communicator : rank.flight.communicators)
    if (communicator.id == collective.id && communicator.entered >= collective.entered) return true;
  return false;
}

bool has_left(const WatchedRank& rank, const FlightCommunicator& collective) {
  for (const FlightCommunicator& communicator : rank.flight.communicators)
    if (communicator.id == collective.id && communicator.left >= collective.entered) return true;
  return false;
}

// Returns the member that delays the collective: one that is stopped inside or before it, or otherwise one
// that has not entered it, preferably one that waits for no other itself. -1 means that all are inside.
int missing_member(NumberedView<WatchedRank> ranks, const Waiting& waiting) {
  int missing = -1;
  for (const int member : waiting.in->members) {
    if (member == waiting.rank || static_cast<std::size_t>(member) >= ranks.size()) continue;
    const WatchedRank& other = ranks[member];
    if (other.standstill && !has_left(other, *waiting.in)) return member;
    if (has_entered(other, *waiting.in)) continue;
    if (missing < 0 || (longest_inside(ranks[missing].flight) && !longest_inside(other.flight)))
      missing = member;
  }
  return missing;
}

// Returns, if all members have entered and some wait for the others, one that does not wait: preferably one
// that is inside (its comm plugin does not advance), otherwise one that went on without the others. -1 means
// that there is none.
int idle_member(NumberedView<WatchedRank> ranks, const Waiting& waiting) {
  int inside = -1, gone_on = -1;
  bool somebody_waits = false;
  for (const int member : waiting.in->members) {
    if (static_cast<std::size_t>(member) >= ranks.size()) continue;
    const WatchedRank& rank = ranks[member];
    for (const FlightCommunicator& communicator : rank.flight.communicators) {
      if (communicator.id != waiting.in->id) continue;
      const bool here = communicator.entered == waiting.in->entered && communicator.inside();
      somebody_waits |= here && communicator.waiting;
      if (here && !communicator.waiting && inside < 0) inside = member;
      if (communicator.left >= waiting.in->entered && gone_on < 0) gone_on = member;
    }
  }
  return !somebody_waits ? -1 : inside >= 0 ? inside : gone_on;
}

std::string collective_text(const FlightCommunicator& in) {
  return detail::concat(in.operation, " (number ", in.entered, " of '", in.name, "')");
}

std::string waiting_text(const Waiting& waiting, std::int64_t now_ns) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", static_cast<double>(now_ns - waiting.in->entered_ns) * 1e-9);
  return detail::concat(", in which rank ", waiting.rank, " has waited for ", seconds, " s");
}

Hang blame(NumberedView<WatchedRank> ranks, int culprit, const Waiting& by, std::int64_t now_ns) {
  const WatchedRank& rank = ranks[culprit];
  const std::string what = rank.ended        ? "ended before it reached "
                           : rank.standstill ? std::string(rank.standstill) + " and holds up "
                                             : "has not reached ";
  return {culprit, what + collective_text(*by.in) + waiting_text(by, now_ns)};
}

Hang blame_inside(NumberedView<WatchedRank> ranks, const Waiting& by, std::int64_t now_ns) {
  const int culprit = idle_member(ranks, by);
  const std::string collective = collective_text(*by.in);
  if (culprit < 0)
    return {by.rank,
            "is stuck inside " + collective + ", which all members have entered" + waiting_text(by, now_ns)};
  if (has_left(ranks[culprit], *by.in))
    return {culprit, "has gone on without the others from " + collective + waiting_text(by, now_ns)};
  return {culprit, "does not get on in its comm plugin, in " + collective +
                       ", which all members have entered" +
                       (culprit == by.rank ? std::string() : waiting_text(by, now_ns))};
}

// Follows from one rank that waits to the one it waits for, until a rank waits for no other.
Hang follow(NumberedView<WatchedRank> ranks, Waiting at, std::int64_t now_ns) {
  if (const char* standstill = ranks[at.rank].standstill)
    return {at.rank, standstill + (" inside " + collective_text(*at.in))};
  std::vector<int> path = {at.rank};
  for (;;) {
    const int next = missing_member(ranks, at);
    if (next < 0) return blame_inside(ranks, at, now_ns);
    const WatchedRank& rank = ranks[next];
    const FlightCommunicator* in = longest_inside(rank.flight);
    if (rank.ended || rank.standstill || !in) return blame(ranks, next, at, now_ns);
    if (std::find(path.begin(), path.end(), next) != path.end())
      return {next,
              detail::concat("waits in ", collective_text(*in), " and rank ", at.rank, " waits for it in ",
                             collective_text(*at.in), ": they call collectives in different orders")};
    path.push_back(next);
    at = {next, in};
  }
}

}  // namespace

std::optional<Hang> find_hang(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                              std::chrono::milliseconds limit) {
  const std::int64_t latest = now_ns - std::chrono::nanoseconds(limit).count();
  for (const WatchedRank& rank : ranks)
    if (!rank.ended && rank.flight.saved_ns > std::max<std::int64_t>(latest, 0)) return {};
  Waiting longest;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].ended) continue;
    const FlightCommunicator* in = longest_inside(ranks[i].flight);
    if (!in || in->entered_ns > latest || (longest.in && longest.in->entered_ns <= in->entered_ns)) continue;
    longest = {static_cast<int>(i), in};
  }
  if (!longest.in) return find_all_stuck(ranks, now_ns, limit);
  return follow(ranks, longest, now_ns);
}

std::optional<Hang> find_all_stuck(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                                   std::chrono::milliseconds limit) {
  const std::int64_t latest = now_ns - std::chrono::nanoseconds(limit).count();
  int first = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].ended) continue;
    const std::int64_t since = ranks[i].flight.stands_ns;
    if (since <= 0 || since > latest) return {};
    if (first < 0 || since < ranks[first].flight.stands_ns) first = static_cast<int>(i);
  }
  if (first < 0) return {};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f",
                static_cast<double>(now_ns - ranks[first].flight.stands_ns) * 1e-9);
  return Hang{first, detail::concat("has not got on in a step for ", seconds, " s, nor has any other rank"),
              false};
}

std::optional<Hang> find_stuck_at_stop(NumberedView<WatchedRank> ranks, std::int64_t now_ns,
                                       std::chrono::milliseconds limit) {
  return find_all_stuck(ranks, now_ns, limit) ? find_hang(ranks, now_ns, limit) : std::nullopt;
}

std::optional<Hang> StoppedAlone::find(NumberedView<WatchedRank> ranks, Clock::time_point now,
                                       std::chrono::milliseconds limit) {
  const auto stopped =
      std::find_if(ranks.begin(), ranks.end(), [](const WatchedRank& rank) { return rank.standstill; });
  const bool others_run = std::any_of(
      ranks.begin(), ranks.end(), [](const WatchedRank& rank) { return !rank.ended && !rank.standstill; });
  if (stopped == ranks.end() || others_run) {
    since_.reset();
    return {};
  }
  if (!since_) since_ = now;
  if (now - *since_ < limit) return {};
  return Hang{static_cast<int>(stopped - ranks.begin()),
              std::string(stopped_text) + ", and no other rank runs any more"};
}

std::optional<std::string> long_wait(const FlightSnapshot& flight, int rank, std::int64_t now_ns,
                                     std::chrono::milliseconds limit) {
  const FlightCommunicator* in = longest_inside(flight);
  if (!in || in->entered_ns > now_ns - std::chrono::nanoseconds(limit).count()) return {};
  return collective_text(*in) + waiting_text({rank, in}, now_ns);
}

namespace {

// ------------------------------------------------------------------- remote watch

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
