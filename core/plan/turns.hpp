// Memory that instances take turns in: for parameters kept in parts, from the gather to the use; for
// gradients of a microbatch, until they are summed over the ranks. The order of the passes says which
// instances need theirs at the same time; all others may share.
#pragma once

#include <initializer_list>
#include <map>

#include "plan/bundles.hpp"
#include "plan/offsets.hpp"

namespace prun {

// A function as a pass calls it.
struct PassCall {
  std::int32_t function = -1;
  std::int32_t instance = 0;
};
// In order. The backward pass of a program whose backward is split has both its functions.
std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call);

// Which instances' memory in a region the calls of each function touch.
class Touched {
 public:
  Touched(const Plan& plan, std::initializer_list<Region> wanted);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  using Target = std::pair<Whose, std::int32_t>;
  std::vector<std::vector<Target>> targets_;  // by function
};

// The function that empties an instance's gradients as they begin, where their memory is its only for a time;
// -1: they have memory of their own, and are emptied when the step begins.
std::int32_t clearing_in_turn(const Plan& plan, std::int32_t instance);

// When the gradients of an instance begin and are complete. Those that a function `clear` empties are summed
// over the ranks as soon as no microbatch has given only some of its contributions; all others after the last
// one of the step. What is tied to another stage is complete at the end only, which is not said here.
class Contributions {
 public:
  Contributions(const Plan& plan, const Work& work);
  // To be called around each call of a pass, in order: which instances' gradients begin with it, and which
  // are complete after it.
  std::vector<std::int32_t> begun_by(const PassCall& call);
  std::vector<std::int32_t> completed_by(const PassCall& call, std::int32_t microbatch);

 private:
  struct Microbatch {
    std::int64_t all = 0, left = 0;
  };
  struct Progress {
    bool each = false, in_turn = false, tied = false, begun = false;
    std::int64_t left = 0;  // contributions of the step
    std::map<std::int32_t, Microbatch> microbatches;
    std::int64_t partial = 0;  // microbatches of which some contributions have come, not all
  };
  Touched touched_;
  std::vector<Progress> progress_;  // by instance
};

// Consecutive calls for which parameters are gathered together.
struct GatheredUse {
  Bundle instances;
  std::int64_t calls = 0;
};
using GatheredUses = std::vector<GatheredUse>;
GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling);

// Instances whose gradients are summed over the ranks together, in the order in which they are complete:
// within a pass, and last what is tied.
std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling);

// Where each instance's part of a region lies.
struct Turns {
  std::vector<std::int64_t> bytes;  // by instance
  Offsets offsets;

  bool overlap(std::int32_t a, std::int32_t b) const;
};
// While gathered parameters are used, those of the next use can be gathered.
Turns take_gathered_turns(const GatheredUses& uses, std::vector<std::int64_t> bytes);
// While the gradients of a bundle are summed, the next can contribute. Offsets count from where scratch
// begins: that of functions which do not run meanwhile is theirs as well.
Turns take_unreduced_turns(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                           std::vector<std::int64_t> bytes);
// While those of a bundle travel in another type, the next ones are converted.
Turns take_bucket_turns(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes);
// Needs plan.calls. While one instance is updated on another device, the next one's gradients come there and
// the parameters of the one before go back. More at a time would hide nothing more. Where each comes in three
// pieces or more, the next one's first piece comes when this one's first has gone, and both have the same
// memory.
//
// What comes from drives takes as long as it is large, each way. Behind one that is much larger than others
// three of those are soon there, and nothing more can come until it is back. Far ahead, others may come for
// as long as that takes, and for the next step as well: drives wait for nothing.
Turns take_update_turns(const Plan& plan, std::vector<std::int64_t> bytes, bool far_ahead);

}  // namespace prun
