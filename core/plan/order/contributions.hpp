// Finds, from the order of passes, when an instance's gradients begin and when they are complete: then they
// can be summed over the ranks. Example: with four microbatches and 1F1B, layer 0's gradients begin with B0
// and are complete after B3; with strategy zero, stage = 2, they begin and are complete in each backward.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/order/pass_calls.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Is the function `clear` of an instance whose gradients are offloaded between the microbatches that add to
// them; -1: they are not. Its pieces before `back` offload them, the others fetch them.
struct SumMoves {
  std::int32_t function = -1, back = 0;

  bool any() const { return function >= 0; }
};

// Follows the calls of a step in order. Gradients that a function `clear` empties are complete whenever each
// microbatch has added all of its contributions or none; others after the last contribution of the step.
// Gradients tied to another stage are complete after all passes, and never reported here.
class Contributions {
 public:
  Contributions(const Plan& plan, const Work& work);
  // Returns the instances whose gradients begin with this call; completed_by() those whose gradients are
  // complete after it. Call one before and the other after each call of a pass, in order.
  std::vector<std::int32_t> begun_by(const PassCall& call);
  std::vector<std::int32_t> completed_by(const PassCall& call, std::int32_t microbatch);
  // Returns those of begun_by() that are fetched. It may be called ahead, so that another call runs
  // meanwhile. set_aside_by() returns those to offload after the call; it follows completed_by().
  std::vector<std::int32_t> returning_for(const PassCall& call);
  std::vector<std::int32_t> set_aside_by(const PassCall& call);
  // Returns the function that empties an instance's gradients as they begin, where instances share memory for
  // them; -1: they have dedicated memory and are emptied when the step begins.
  std::int32_t clearing_of(std::int32_t instance) const { return progress_[instance].clearing; }
  const SumMoves& moves_of(std::int32_t instance) const { return progress_[instance].moves; }
  // Returns true if something was added to an instance's gradients in this step.
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
    std::map<std::int32_t, Microbatch> microbatches;  // by number; interleaved ones count as one
    std::int64_t partial = 0;  // microbatches that have added some of their contributions, not all
  };
  TouchedRegions touched_;
  Numbered<Progress> progress_;  // progress by instance
  std::int32_t lanes_;
};

}  // namespace prun
