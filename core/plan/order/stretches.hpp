// Records who used which bytes, from which waits follow. Bytes with the same users form a stretch. Example: a
// write of [0, 100) and a read of [50, 80) give three stretches; the next write of [60, 70) must wait for
// that read.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------ call uses

// Is a range of the arena that a call touches.
struct ByteUse {
  std::int64_t begin = 0, end = 0;
  bool writes = false;
};

// Finds what a call reads and writes, writes first, with adjacent ranges merged. `side`: which copy of the
// buffers the step has. Accesses of the host are not included: it writes before a step starts, and reads when
// the step is done. `all_ranks` gives a result that is the same on all ranks: it takes all shards of a flat
// range instead of the rank's own, and no workspaces, whose size depends on a rank's threads and which only
// calls of one queue share.
enum class UsesOf : std::uint8_t { this_rank, all_ranks };
void find_uses(const Program& program, const Plan& plan, const Call& call, int side, UsesOf whose,
               std::vector<ByteUse>& uses);

// Maps where a stretch begins to its users; `Users::end` is where it ends. Stretches do not overlap.
template <class Users>
class Stretches : public std::map<std::int64_t, Users> {
 public:
  using Place = typename std::map<std::int64_t, Users>::iterator;

  // Returns the first stretch within the bytes used, after splitting those that cross their ends. The first
  // test is for speed: most uses are of exactly one stretch.
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
