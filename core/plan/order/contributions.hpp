// Finds the pass in which an instance's gradients begin, and in which they are complete. Example: with four
// microbatches and 1F1B, layer 0's gradients begin with B0 and are complete after B3.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/order/pass_calls.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Names the function `clear` of an instance whose gradients leave the device between two microbatches that
// add to them. Pieces before `back` move them away, the others bring them back; -1: they stay.
struct SumMoves {
  std::int32_t function = -1, back = 0;

  bool any() const { return function >= 0; }
};

// Says when the gradients of an instance begin and are complete. Those that a function `clear` empties are
// summed over the ranks as soon as no microbatch has given only some of its contributions; all others after
// the last one of the step. A gradient that is tied to another stage is complete at the end only, which is
// not stated here.
class Contributions {
 public:
  Contributions(const Plan& plan, const Work& work);
  // Returns the instances whose gradients begin with a call of a pass; the next function returns those whose
  // gradients are complete after it. They are called around each call, in order.
  std::vector<std::int32_t> begun_by(const PassCall& call);
  std::vector<std::int32_t> completed_by(const PassCall& call, std::int32_t microbatch);
  // Returns those of begun_by() that come back, which may be said ahead of the call: a call before it may run
  // while they come. The next function returns those that leave after a call, until a later microbatch adds
  // to them; it follows completed_by().
  std::vector<std::int32_t> returning_for(const PassCall& call);
  std::vector<std::int32_t> set_aside_by(const PassCall& call);
  // Returns the function that empties an instance's gradients as they begin, if their memory is the
  // instance's only for a time; -1: they have memory of their own, and are emptied when the step begins.
  std::int32_t clearing_of(std::int32_t instance) const { return progress_[instance].clearing; }
  const SumMoves& moves_of(std::int32_t instance) const { return progress_[instance].moves; }
  // Says whether an earlier microbatch has added to an instance's gradients.
  bool has_sums(std::int32_t instance) const { return progress_[instance].left < progress_[instance].all; }

 private:
  struct Microbatch {
    std::int64_t all = 0, left = 0;
  };
  struct Progress {
    SumMoves moves;
    std::int32_t clearing = -1;
    bool each = false, tied = false, begun = false;
    std::int64_t all = 0, left = 0;                   // contributions of the step
    std::map<std::int32_t, Microbatch> microbatches;  // microbatches; those that go side by side count as one
    std::int64_t partial = 0;  // microbatches that have given some of their contributions, not all
  };
  TouchedRegions touched_;
  Numbered<Progress> progress_;  // progress by instance
  std::int32_t lanes_;
};

}  // namespace prun
