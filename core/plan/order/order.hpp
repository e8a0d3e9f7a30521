// Passes of planning that order the calls of a step, in the order in which make/make_plan.cpp runs them:
// calls, waits, sums, saves. Example: for one microbatch of two layers: begin, F0, F1, head, B1, reduce 1,
// B0, reduce 0, norm, update 0, update 1.
#pragma once

#include <span>
#include <vector>

#include "plan/base_program.hpp"
#include "plan/carried_spans.hpp"
#include "plan/order/time_slots.hpp"
#include "plan/order/used_together.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------ order calls

// Orders the calls of a step.

// Lists instances that exchange together.
struct Bundles {
  GatheredUses uses;
  std::vector<Bundle> reduced, updated, renewed;
};
// Adds the passes of each microbatch in the order that the work says, with what goes from stage to stage
// around them, then the update. Microbatches are loaded one ahead; parameters kept in parts are gathered one
// use ahead; the gradients of a bundle are summed over the ranks as soon as they are complete.
//
// It needs plan.functions, plan.instances, plan.chunks and plan.queues; it fills calls, and how many
// microbatches of a chunk are alive at once, and adds joint functions. Which call waits for which is decided
// by derive_waits(). The first `speculate` instances with complete gradients are updated by `speculate` and
// `settle`.
void order_calls(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
                 const TimeSlots& gathered, std::int32_t speculated, Plan& plan);

// ------------------------------------------------------------ first writers

// Decides which contribution begins a sum: it writes, and no call has to clear what it adds to.

// Takes each sum that a function `zero` or `clear` clears, for as long as it is one sum: a step, or from one
// clear to the next. If in each of them the first call that adds to it has a kernel that can write instead,
// it is told to (Call::first), and the plan clears no more. It needs the final order of calls; what is left
// empty is taken out of functions, calls and queues.
void choose_first_writers(const Program& program, Plan& plan);

// ------------------------------------------------------------ carried sums

// Decides which call begins each gradient of a carried value.

// Lets, for each microbatch, what comes from the later stage, or else the first op on this rank that adds to
// it, begin the sum. Throws unsupported if that op's kernel cannot.
void begin_carried_sums(const Program& program, Plan& plan);

// ------------------------------------------------------------ first steps

// Has calls run in the first step of a text alone, where that leaves to the others what they compute
// (program/text_steps.hpp). Example: those of T5's encoder and of the keys and values that its decoder looks
// at, and transfers of the encoder's results between stages.

// Divides functions where what runs once and what runs in each step meet. It runs before calls are ordered.
void divide_at_first_steps(const Program& program, Plan& plan);
// Limits calls of what runs once to the first round of a row, which a text is. It needs all calls.
void limit_to_first_steps(const Program& program, Plan& plan);

// ------------------------------------------------------------ side by side

// Orders calls where several microbatches go through the chain side by side.

// Puts the calls of a plan, which are in a valid order with all memory placed, into one in which the compute
// queue has work while exchanges travel. Calls that touch the same bytes keep their order, so that sums are
// added up as before. The order is the same on all ranks that run the same program: it uses nominal times,
// and ignores what depends on a rank's threads.
void order_side_by_side(const Program& program, Plan& plan);

// ------------------------------------------------------------ waits

// Decides which call waits for which.

// Adds the fewest waits that keep every use of a byte behind the uses it must follow, also those of the step
// before. Each queue runs its calls in order; only waits order calls of different queues. The calls are given
// in an order that would be right one after the other. It needs a plan with its layout.
void derive_waits(const Program& program, Plan& plan);

// ------------------------------------------------------------ save reads

// Plans the saver's queue: what a save that goes on beside the next steps reads in which order, and which
// calls wait for it.

// Derives the reads of a save, which is of one step: the first call to overwrite what it reads waits until
// that is read, in whichever step. Reads stand in the order in which a step overwrites what they read, so
// each call waits for one of them, and with it for all before; waits that another wait implies are left out.
// The waits of the plan's own queues are derived before. If `base_program` is a plan of the same program, a
// save may go on over steps of both, so its reads are those of the other.
void derive_save_reads(const Program& program, std::int64_t rank, Plan& plan,
                       const BaseProgram* base_program = nullptr);

}  // namespace prun
