#include "launch/rank_failures.hpp"

#include <sys/wait.h>

#include <cstring>

#include "prun/error.hpp"

namespace prun {

RankFailure& RankFailures::of(int rank, const RankGroup& ranks) {
  if (failures_.empty()) when_it_failed_ = ranks.snapshots();
  for (RankFailure& failure : failures_)
    if (failure.rank == rank) return failure;
  RankFailure& failure = failures_.emplace_back();
  failure.rank = rank;
  const FlightSnapshot flight = ranks[rank].flight.snapshot();
  failure.doing = describe_flight(flight, flight_now_ns());
  failure.exchange = last_exchange(flight);
  failure.at = std::time(nullptr);
  return failure;
}

const RankFailure* RankFailures::first_cause() const {
  for (const RankFailure& failure : failures_)
    if (!failure.consequence) return &failure;
  return nullptr;
}

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return detail::concat("ended with exit code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigabbrev_np(signal);
  return detail::concat("was killed by signal ", signal, name ? detail::concat(" (SIG", name, ")") : "");
}

}  // namespace prun
