// Adds calls of updates: after the norm or, if updates do not depend on it, as gradients are complete. If
// they depend on it, some instances may be updated before it is known (`speculate`), and corrected later
// (`settle`). Example: without clipping, layer 3 is updated on the host during backward of layer 2.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plan/order/bundles.hpp"
#include "plan/order/slots.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"
#include "prun/schedule.hpp"

namespace prun {

// ------------------------------------------------------------------- call list
// Appends calls to a plan, so that the code that decides their order need not know queues, slots and pieces.
// Example: add(forward, 3, 0) appends one call for each piece of layer 3's forward, with the slot of
// microbatch 0 and the next position of its queue.

class CallList {
 public:
  explicit CallList(Plan& plan) : plan_(plan) {}

  // Sets the slots that the next calls have: those of their microbatch.
  void hold(const Slots::Taken& held) { held_ = held; }
  const Slots::Taken& held() const { return held_; }
  void hold_carried(std::int32_t slot) { carried_ = slot; }

  // Adds one call for each piece of the function, or none if the segment has no such function.
  void add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch = -1);
  void add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch);
  void add_piece(const InstancePiece& piece, std::int32_t microbatch = -1);

  // Adds the pieces of a function before its collectives; the next one adds those after them, for each
  // instance of a bundle.
  void add_before_exchanges(FunctionKind kind, std::int32_t instance);
  void add_behind_exchanges(FunctionKind kind, const Bundle& bundle);
  // Adds the collectives of a bundle: one call for the pieces of all instances that come next on a queue.
  void add_exchanges(FunctionKind kind, const Bundle& bundle);

 private:
  const PlannedFunction& function_at(std::int32_t function) const { return plan_.functions[function]; }
  void add_pieces(std::int32_t function, std::int32_t first, std::int32_t last, std::int32_t instance,
                  std::int32_t microbatch = -1);
  std::int32_t queue_of(const InstancePiece& piece) const;
  bool uses_stub(std::int32_t instance) const;

  Plan& plan_;
  Slots::Taken held_;
  std::int32_t carried_ = 0;
};

// Calls body(value) for each value that a piece reads or writes, as often as it does.
template <class Body>
void each_value(const Plan& plan, std::int32_t function, std::int32_t piece, Body&& body) {
  Call call;
  call.function = function;
  call.piece = piece;
  for (const PlannedStep& step : plan.steps(call))
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none) body(operand.value);
}

inline std::int32_t piece_count(const Plan& plan, std::int32_t function) {
  return static_cast<std::int32_t>(plan.functions[function].pieces.size());
}

// ------------------------------------------------------------------- update calls

class UpdateCalls {
 public:
  // `bundles`: instances whose updates share collectives, in the order of forward. `together`: no update
  // comes before update_the_rest(). `speculated`: at most so many are updated before the norm is known.
  UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together, std::int32_t speculated,
              CallList& calls);

  // Call it when the gradients of these instances are complete; adds the updates that can begin.
  void complete(const Bundle& bundle);
  // Adds all other updates; call it at the end of the step.
  void update_the_rest();

 private:
  bool need_nothing_of_the_norm() const;
  bool is_put_off(std::int32_t instance) const;
  bool is_updated_elsewhere(std::int32_t instance) const;
  bool reads_arrived(std::int32_t instance) const;
  bool exchanges_scratch(std::int32_t instance) const;
  void speculate(const Bundle& bundle);
  void begin_speculation();
  void begin();
  void update(Bundle bundle);

  const Plan& plan_;
  std::span<const Bundle> bundles_;
  CallList& calls_;
  const bool are_free_;
  Bundle updated_;  // instances in the order of forward
  std::set<std::int32_t> left_;
  std::int32_t may_speculate_;         // number of further instances that may be updated speculatively
  std::set<std::int32_t> speculated_;  // instances that are
  bool begun_ = false, begun_speculation_ = false;
};

// ------------------------------------------------------------------- pass calls
// Expands a pass of a schedule into calls of functions, and finds whose memory each of them touches. Example:
// the backward pass of a chunk of layers 2 and 3 calls backward of layer 3, then of layer 2; with ZeRO-3 each
// touches the gathered parameters of its layer.

// Is one call of a pass.
struct PassCall {
  std::int32_t function = -1;
  std::int32_t instance = 0;
};
// Returns the calls of a pass in order. Where backward is split into input and weight gradients, a backward
// pass that does both has two calls for each instance.
std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call);

// Finds, by function, the instances whose memory in some regions a call touches.
class TouchedRegions {
 public:
  TouchedRegions(const Plan& plan, std::initializer_list<Region> wanted);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  using Target = std::pair<Whose, std::int32_t>;
  Numbered<std::vector<Target>> targets_;  // targets by function
};

// Finds the instances whose parameters must be gathered for a call: those that it touches in region
// `gathered` or, if they are gathered in place (ProgramWriter::gather_ahead), in `parameter`.
class TouchedGathered {
 public:
  explicit TouchedGathered(const Plan& plan);
  std::vector<std::int32_t> by(const PassCall& call) const;

 private:
  const Plan& plan_;
  const TouchedRegions touched_;
};

// ------------------------------------------------------------------- contributions
// Finds, from the order of passes, when an instance's gradients begin and when they are complete: then they
// can be summed over the ranks. Example: with four microbatches and 1F1B, layer 0's gradients begin with B0
// and are complete after B3; with strategy zero, stage = 2, they begin and are complete in each backward.

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
  std::int32_t interleave_;
};

}  // namespace prun
