// Orders the calls of a step, and decides which wait for which. make/make_plan.cpp runs these passes in the
// order of this file. Example: for one microbatch of two layers: begin, F0, F1, head, B1, reduce 1, B0,
// reduce 0, norm, finish, update 0, update 1.
#pragma once

#include <span>
#include <vector>

#include "plan/order/time_slots.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------ order calls

// Lists instances that share collectives: as parameters are gathered, gradients summed, layers updated, and
// secondary copies refreshed.
struct Bundles {
  GatheredUses uses;
  std::vector<Bundle> reduced, updated, renewed;
};
// Adds the passes in the order of `work`, with transfers between stages, then norm and updates. Microbatches
// are loaded one ahead and sharded parameters gathered one use ahead; the gradients of a bundle are summed
// over the ranks once they are complete. The first `speculated` instances whose gradients are complete are
// updated by functions `speculate` and `settle`.
//
// Needs plan.functions, plan.instances, plan.chunks and plan.queues. Fills plan.calls and the number of slots
// of each chunk, and adds joint functions.
void order_calls(const Work& work, std::span<const CarriedSpan> carried, const Bundles& bundles,
                 const TimeSlots& gathered, std::int32_t speculated, Plan& plan);

// ------------------------------------------------------------ first writers

// Saves clearing sums: the first call that adds to a sum writes instead (Call::first), if its kernel can.
// Example: the gradient of a layer's weight is written by the first microbatch's backward, and `zero` of the
// layer is no longer called. A clear stays if any first call after it cannot write.
//
// Needs the final order of calls. Removes steps, functions and calls that are left without work.
void choose_first_writers(const Program& program, Plan& plan);

// ------------------------------------------------------------ carried sums

// Decides for each microbatch what begins the gradient of a carried value: the sum that arrives from a later
// stage or, without one, the first op on this rank that adds to it. Throws unsupported if that op's kernel
// cannot write.
void begin_carried_sums(const Program& program, Plan& plan);

// ------------------------------------------------------------ first steps

// Has calls run in the first step of a text alone, where that leaves to the others what they compute
// (program/text_steps.hpp). Example: those of T5's encoder and of the keys and values that its decoder looks
// at, and transfers of the encoder's results between stages.

// Divides functions where what runs once and what runs in each step meet. It runs before calls are ordered.
void divide_at_first_steps(const Program& program, Plan& plan);
// Limits calls of what runs once to the first iteration of a row, which a text is. It needs all calls.
void limit_to_first_steps(const Program& program, Plan& plan);

// ------------------------------------------------------------ interleaved microbatches

// Reorders the calls of several microbatches (batch.interleave) so that one computes while collectives of
// another travel. Example: F0 of microbatch 0, its all-reduce, and during that F0 of microbatch 1. Calls that
// touch the same bytes keep their order, and with it the order of sums. All ranks that run the same program
// get the same order: it follows from nominal times, and from nothing that depends on a rank's threads.
void order_interleaved(const Program& program, Plan& plan);

// ------------------------------------------------------------ waits

// Adds the fewest waits between queues that keep the order of calls which touch the same bytes, where one of
// them writes; also those of the step before. Example: backward of layer 3 waits for the gather of layer 3,
// and not for that of layer 2, which came earlier on the same queue. Needs plan.layout, and calls in an order
// that is right if they run one after the other.
void derive_waits(const Program& program, Plan& plan);

// ------------------------------------------------------------ save reads

// Plans a save that runs during the next steps: what it reads in which order, and which calls wait for that.
// Reads are in the order in which a step overwrites what they read, so a call that overwrites waits for one
// of them, and by that for all before it. Example: update 0 waits until the state of layer 0 is read, while
// the save goes on with layer 1. Needs derive_waits() before it: waits that others imply are left out.
// If `base_program` has a plan of the same program, a save may span steps of both, and has its reads.
void derive_save_reads(const Program& program, std::int64_t rank, Plan& plan,
                       const BaseProgram* base_program = nullptr);

}  // namespace prun
