#include "launch/launch_report.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/utc.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// Writes a list such as "0-2, 5".
std::string list_of(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) out += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace

void LaunchReport::tell(const RankFailure& failure, pid_t pid,
                        std::span<const FlightSnapshot> when_it_failed) const {
  const std::string what = failure.what.empty() ? "failed" : failure.what;
  const std::string ended =
      detail::concat("prun: rank ", options_.number_of(failure.rank), " (pid ", pid, ") ", what);
  if (options_.share) return options_.say(ended);  // ranks of several hosts report the rest themselves
  options_.say(ended + "; " + it_was(failure.doing));
  if (!failure.said.empty()) options_.say(detail::concat("prun: rank ", failure.rank, ": ", failure.said));
  report_others(failure, when_it_failed);
  report_circumstances(failure, pid);
  report_next(failure);
}

// Reports what each rank did last, those that did the same on one line; the odd one is marked where ranks
// wait.
void LaunchReport::report_others(const RankFailure& failure,
                                 std::span<const FlightSnapshot> when_it_failed) const {
  std::vector<std::pair<std::string, std::vector<int>>> others;
  for (std::size_t i = 0; i < when_it_failed.size(); ++i) {
    if (static_cast<int>(i) == failure.rank) continue;
    const std::string doing = describe_flight(when_it_failed[i]);
    auto same =
        std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == doing; });
    if (same == others.end()) same = others.insert(others.end(), {doing, {}});
    same->second.push_back(static_cast<int>(i));
  }
  for (const auto& [doing, ranks] : others)
    options_.say(detail::concat("prun:   rank", ranks.size() > 1 ? "s " : " ", list_of(ranks), ": ", doing));
  if (failure.exit_code == exit_code(ErrorCode::hang))
    options_.say(detail::concat("prun: > rank ", failure.rank, ": ", failure.doing,
                                failure.awaited ? "  <- the others wait for it" : ""));
}

void LaunchReport::report_circumstances(const RankFailure& failure, pid_t pid) const {
  const auto lived =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began_).count();
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  options_.say(detail::concat("prun:   when: ", utc_text(failure.at), ", ", lived, " s after the start, on ",
                              printable(host, sizeof host)));
  if (!failure.exchange.empty()) options_.say("prun:   its last exchange: " + failure.exchange);
  if (failure.killed) options_.say("prun:   why: " + kernel_.of(pid));
}

void LaunchReport::report_next(const RankFailure& failure) const {
  const bool lost = failure.exit_code == exit_code(ErrorCode::rank_died) ||
                    failure.exit_code == exit_code(ErrorCode::hang) ||
                    failure.exit_code == exit_code(ErrorCode::comm_failed);
  const bool full = failure.exit_code == exit_code(ErrorCode::storage);
  const std::string next = (lost || full) && options_.next ? options_.next() : "";
  if (!next.empty())
    options_.say((full ? "prun:   next, once files can be written: " : "prun:   next: ") + next);
}

void LaunchReport::report_survivor(int rank, pid_t pid) const {
  options_.say(detail::concat("prun: rank ", options_.number_of(rank), " (pid ", pid,
                              ") does not die; the system holds it, see /proc/", pid, "/stack"));
}

}  // namespace prun
