// Finds which bytes of the arena a call touches.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct ByteUse {
  std::int64_t begin = 0, end = 0;
  bool writes = false;
};

// Finds what a call reads and writes; adjacent uses are merged, and writes come first. `side` is the step's
// parity. The host's side of the staging area is left out: a step is started after the host has written it
// and read after the step is done. For all ranks, workspaces are left out, whose bytes depend on a rank's
// threads and which steps of one queue use one after the other, and all parts of a flat range are taken
// instead of the rank's own.
enum class UsesOf : std::uint8_t { this_rank, all_ranks };
void find_uses(const Program& program, const Plan& plan, const Call& call, int side, UsesOf whose,
               std::vector<ByteUse>& uses);

}  // namespace prun
