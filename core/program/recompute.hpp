// Makes backward compute activations again instead of keeping them from forward.
//
// Results of forward that backward reads are kept in memory from one to the other. Some ops may run again:
// all without persistent effect, or those of the given kinds. Then it is enough to keep values from which the
// rest follows; which ones is a cheapest cut through forward, by bytes. A segment's input and output are kept
// anyway and cost nothing, so with all ops allowed usually nothing else is kept.
//
// An op that may run again does not write a result that only spares its gradient work (Gradient::keep): its
// gradient computes that, which is less than the whole op.
//
// Each function that reads such a value computes it itself, right before the first use there: a value that is
// needed late in backward takes no memory before that, and none is kept from backward to a split
// backward_weight. This has a cost: with a split backward some ops run twice. What a function does for
// itself as well, it does once.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Changes a placed program with backward. The numbers a step computes stay the same to the last bit.
void recompute(Program& program, Id segment, const RecomputeChoice& choice);

// Estimates what a choice would mean for one repetition of a segment, on one rank.
struct RecomputeEstimate {
  std::int64_t kept_bytes = 0;
  OpCost cost;  // cost of what runs again
};
RecomputeEstimate estimate_recompute(const Program& program, Id segment, const RecomputeChoice& choice);

// Says whether a segment leaves the choice to the planner.
bool chooses_recompute(const Program& program);
// Returns ways to make a program fit whose segments leave the choice to the planner: none, then kinds of ops,
// those first that free most bytes for their cost, then full.
std::vector<RecomputeChoice> recompute_choices(const Program& program);

// Returns what runs again, such as "gelu, layernorm in block", or "nothing".
std::string recomputed_text(const Program& program);
// Returns the FLOPs of what runs again in one microbatch, on all ranks.
double recomputed_flops(const Program& program);

}  // namespace prun
