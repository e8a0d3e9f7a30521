// Declares the core's own passes over a program, in the order they run: the model writes forward, then
//   add_backward   gradients of every segment
//   add_update     accumulators, norm, optimizer
//   add_step       what frames a step: load, begin, finish, report (program/step.hpp)
// Strategies of phase `model` run before the first, all others after the last. verify() may run at any time.
// Where nothing is trained, keep_forward() then takes all but the loss, or whatever is asked for, out again.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/optimizers.hpp"
#include "program/step_program.hpp"

namespace prun {

// Says whether ranks sum what this optimizer makes of the parameter's gradient, in signs, and never the
// gradient.
bool sums_in_update(const Program& program, Id parameter, const NamedOptimizer& optimizer);

// Returns the attributes of the op `cast`.
inline std::array<AttrValue, 2> cast_attrs(DType from, DType to) {
  return {AttrValue{"to", static_cast<double>(to)}, AttrValue{"from", static_cast<double>(from)}};
}

// Lets no position see what lies before its document, each of which ends with that token: ops that have an
// optional operand `documents` get it. The model has written forward. Throws bad_input where there is no such
// op.
void keep_documents_apart(Program& program, std::int64_t end_of_text);

// Has ops that take packed projections get them in two (OpDef::apart), the slots before the last two in
// dimension `within`, so that ranks may split it. It runs before add_backward.
void take_packed_apart(Program& program, std::string_view within);

// Gives each rank of an axis a part of each sequence: splits that dimension, and has ops that read all of it
// do so across ranks. It runs after add_backward, before placement.
void share_out_sequence(Program& program, std::string_view axis, SequenceShares shares);
// Refuses an order of axes that would gather sequences over that axis for exchanges over others.
void check_sequence_axes(const Program& program);

// Derives backward from forward, op by op in reverse. Input and weight gradients are separate ops.
void add_backward(Program& program);

// Moves the weight gradients into a function of their own, so that a schedule may run them later.
void split_backward(Program& program);

// Adds optimizer state and ops for every parameter that is not frozen.
void add_update(Program& program, const Optimizers& optimizers);

// Has passes train with parameters of so many updates before: W(t+1) = W(t) - rate * grad f(W(t-1)), say. It
// runs behind all strategies. Throws unsupported where parameters are fetched or gathered for each use and,
// of delays whose updates come at once, where an update needs what all stages have. It does nothing if there
// are no delays.
void delay_weights(Program& program, const Delays& delays);

// Returns what a parameter of so many updates before has behind its own name: ".before", ".before2".
std::string name_of_before(std::int64_t updates);

// Returns what the update of a parameter gets beside the values that are its own.
UpdateContext update_context(Program& program, Id parameter);

// Appends the update of a parameter, or of a flat one: the optimizer's, and behind it that of the state which
// a strategy has asked for, the last of the context's states.
void write_update(Program& program, Id segment, const NamedOptimizer& optimizer, UpdateContext context);

// Gives `user`, a segment that uses a parameter of another one, a copy of it of its own: the same start, the
// same updates, edited as those of the parameter are, and the two gradients summed (function tie) over two
// ranks of `axis`. Its norm counts once. It runs after add_update, before placement.
void untie(Program& program, Id parameter, Id user, AxisId axis, const Optimizers& optimizers);

// Makes sequences a few positions long, of which the staged `position` says which one is the first; ops keep
// what they need of those before (OpDef::at_position). Positions are the head's; what does not depend on them
// is computed in a text's first step alone (program/text_steps.hpp). It runs before placement, on a program
// that makes text. Returns false, and changes nothing, if an op cannot, or if ranks share out the sequence.
bool step_by_positions(Program& program);

// Takes out of a finished program what does not lead to these staged results: gradients, the optimizer and
// its state. Parameters and their placement stay; noise is off. Throws where an op cannot do without a
// gradient.
void keep_forward(Program& program, std::span<const Id> results);

// Names a gradient of the whole model: of a parameter in one repetition of its segment.
struct TrainedTensor {
  Id parameter = none;
  std::int64_t layer = 0;
};
// Returns all of them in the order of the chain, whatever the layout; `non_finite` counts each one's
// elements.
std::vector<TrainedTensor> trained_tensors(const Program& program);

// Returns the runtime value with a count for each of them.
Id non_finite_counts(Program& program);

// Returns what files and messages call a value: "block.3.qkv.weight" (a copy has its original's name).
std::string full_name(const Program& program, Id value, std::int64_t layer);

// Throws an Error that names segment, op and value at the first broken rule.
void verify(const Program& program);

// Says whether two stages of a pipeline hold the parameter of that gradient.
bool is_tied(const Program& program, Id gradient);

// Writes the program as text: one line for an op, one paragraph for a function.
std::string to_text(const Program& program);

}  // namespace prun
