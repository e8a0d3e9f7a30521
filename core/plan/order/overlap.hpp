// Overlaps steps: the calls of one step, ordered as if it were alone, are divided into groups, and groups at
// its end move into the next iteration. Example: with updates on the host, updates of the last layers run
// during the next step's first forwards.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Is a range of a step's calls that moves as a whole.
struct CallGroup {
  enum class Kind : std::uint8_t {
    begun,     // calls before all passes
    pass,      // calls of one pass
    summed,    // calls after all passes: sums over stages
    measured,  // norms, and the collective that gives each rank the global one
    updated,   // calls that depend on that collective
    reported,  // calls that report sums over ranks to the host
  };
  using enum Kind;
  Kind kind = begun;
  std::size_t number = 0;  // number of the pass
  std::size_t first = 0;   // its first call; it ends where the next group begins
};

// Marks groups while calls are appended to a plan.
class CallGroups {
 public:
  explicit CallGroups(const Plan& plan) : plan_(plan) {}

  // Begin a group with the next call.
  void begin(CallGroup::Kind kind) { groups_.push_back({kind, 0, plan_.calls.size()}); }
  void begin_pass(std::size_t number) { groups_.push_back({CallGroup::pass, number, plan_.calls.size()}); }
  const std::vector<CallGroup>& all() const { return groups_; }

 private:
  const Plan& plan_;
  std::vector<CallGroup> groups_{CallGroup{}};
};

// Orders the plan's calls as in work.period, which says where in an iteration each pass and each group of the
// end of a step comes. Call::behind counts the iterations from the beginning of a call's step to the call.
void overlap_steps(const Work& work, const CallGroups& groups, Plan& plan);

// Makes passes read the right version of parameters: a pass needs them as of a number of updates before its
// step, its instance's delay. At which address that version is depends on the number of updates since: it is
// constant while steps follow each other, and smaller in the first iterations of a row. So a call of a pass
// becomes several, of functions that differ in an address: one for each of those iterations, and one for all
// later ones.
void read_what_is_there(const Program& program, Plan& plan);

}  // namespace prun
