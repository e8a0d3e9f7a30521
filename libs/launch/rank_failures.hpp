// Keeps why a launch fails: what is known of each rank that failed, and what the others did at that time.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "launch/rank_group.hpp"

namespace prun {

// States why the run fails, as far as one rank is concerned.
struct RankFailure {
  int rank = -1;
  int exit_code = 1;
  bool consequence = false;  // whether it says itself that another rank is the reason
  std::string what;          // text such as "was killed by signal 9 (SIGKILL)"
  std::string said;          // the rank's own sentence
  std::string doing, exchange;
  std::time_t at = 0;   // time when it became known
  bool awaited = true;  // whether the others wait for it, in a hang
  bool killed = false;  // whether a SIGKILL that is not ours killed it
};

class RankFailures {
 public:
  bool empty() const { return failures_.empty(); }
  // Returns what is known of a rank's failure; if nothing is yet, what it did last.
  RankFailure& of(int rank, const RankGroup& ranks);
  // Returns the first that became known; the next function returns the first that is no consequence of
  // another; null: there is none.
  const RankFailure* first() const { return failures_.empty() ? nullptr : &failures_.front(); }
  const RankFailure* first_cause() const;
  // Returns what all ranks did when the first failure became known.
  const std::vector<FlightSnapshot>& when_it_failed() const { return when_it_failed_; }

 private:
  std::vector<RankFailure> failures_;  // failures in the order in which they became known
  std::vector<FlightSnapshot> when_it_failed_;
};

// Returns a text such as "was killed by signal 9 (SIGKILL)" for a status that waitpid() gave.
std::string how_it_ended(int status);

}  // namespace prun
