// Divides bytes into stretches and keeps the users of each. Example: a write of [0, 100) and a read of [50,
// 80) give three stretches; the next write of [60, 70) must wait for that read.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------ call uses

// Finds which bytes of the arena a call touches.
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

// Stretches are keyed by where they begin; `Users` states as `end` where its stretch ends. No two overlap.
template <class Users>
class Stretches : public std::map<std::int64_t, Users> {
 public:
  using Place = typename std::map<std::int64_t, Users>::iterator;

  // Returns the first stretch in the bytes used; afterwards none crosses their borders. Most stretches are
  // used whole.
  Place in(const ByteUse& use) {
    const Place whole = this->lower_bound(use.begin);
    if (whole != this->end() && whole->first == use.begin && whole->second.end == use.end) return whole;
    split(use.begin);
    split(use.end);
    return this->lower_bound(use.begin);
  }

 private:
  void split(std::int64_t at) {
    Place it = this->lower_bound(at);
    if (it == this->begin()) return;
    --it;
    if (it->second.end <= at) return;
    Users right = it->second;
    it->second.end = at;
    this->emplace(at, std::move(right));
  }
};

}  // namespace prun
