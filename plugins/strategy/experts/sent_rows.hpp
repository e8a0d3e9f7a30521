// Rewrites a program so that a position is sent to the ranks that hold experts it has chosen, and to no
// others: positions, choices and weights become rows by part of the experts (op send_rows), which ranks
// exchange for rows of their own part, and results come back the same way.
#pragma once

#include <string>

#include "prun/program.hpp"

namespace prun {

struct SentRows {
  std::int64_t parts = 1;  // of the experts, one for each rank
  double budget = 1;       // rows of a part and a sequence are this times their mean
};

// Rewrites all ops `experts` and their gradients. It runs in phase `shard`.
void send_rows(ProgramRef program, const SentRows& sent);

}  // namespace prun
