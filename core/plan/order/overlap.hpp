// Overlaps steps: orders the calls of a step as if it were alone, in groups, then assigns the groups to two
// iterations, so that the last calls of a step run among the first ones of the next. Example: with updates on
// the host, updates of the last layers run during the next step's first forwards.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Says what calls of a step belong together.
struct CallGroup {
  enum class Kind : std::uint8_t {
    begun,     // calls before all passes
    pass,      // calls of one pass
    summed,    // calls behind all of them: sums that other stages have a part in
    measured,  // norms, and the exchange that tells each rank the global one
    updated,   // calls that depend on that exchange
    reported,  // calls that report to the host what ranks sum
  };
  using enum Kind;
  Kind kind = begun;
  std::size_t number = 0;  // number of the pass
  std::size_t first = 0;   // its first call; it ends where the next group begins
};

// Holds the groups of the calls that a plan has so far.
class CallGroups {
 public:
  explicit CallGroups(const Plan& plan) : plan_(plan) {}

  // Begins a group, which the next calls belong to.
  void begin(CallGroup::Kind kind) { groups_.push_back({kind, 0, plan_.calls.size()}); }
  void begin_pass(std::size_t number) { groups_.push_back({CallGroup::pass, number, plan_.calls.size()}); }
  const std::vector<CallGroup>& all() const { return groups_; }

 private:
  const Plan& plan_;
  std::vector<CallGroup> groups_{CallGroup{}};
};

// Puts the plan's calls in the order of work.period: the groups of a step that it has behind the first pass
// of the next step, and all that follow passes, are calls of steps before (Call::behind).
void overlap_steps(const Work& work, const CallGroups& groups, Plan& plan);

// Makes passes read the parameters that are there. A pass wants parameters as they were a number of updates
// before its step, which is its instance's delay. Where they lie depends on how many updates come between:
// while steps follow each other always as many, and fewer in the first rounds of a row. So a call of a pass
// becomes several, of functions that differ in an address: one for each of those rounds, and one for all that
// follow.
void read_what_is_there(const Program& program, Plan& plan);

}  // namespace prun
