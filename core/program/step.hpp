// Adds what frames a step, and the values through which the host and a step exchange data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- step

struct StepOptions {
  double clip = 0;           // global norm limit; 0: none
  bool scales_loss = false;  // whether the runtime number `loss_scale` scales it
};
void add_step(Program& program, const StepOptions& options);

// A tally whose last dimension has this name holds, by layer, the most that was needed of something and as
// much as was planned for it: a step that needed more than that is not kept.
inline constexpr const char* bound_dim = "bound";
bool is_bound(const Value& tally);

// Frames a tally that is declared behind add_step, by a strategy.
void frame_late_tally(Program& program, Id tally);

// Adds a runtime number that the host stages before each step; a number that each rank `counted` for itself
// is a partial sum.
Id add_staged_scalar(Program& program, const char* name, std::vector<Name> counted);

// Lets the host see the logits that each head gives. It runs before placement. Throws unsupported where no
// head gives any.
void add_logits(Program& program);

// Adds what QuantizationCounts describes, and fills in its values.
void add_quantization_counts(Program& program, QuantizationCounts& counts);

// Adds a staged scalar that says whether a rank is the first of an axis, for a program that reads it.
Id add_first_of_axis(Program& program, const std::string& axis);

// Holds a number for the case that the step before was kept, and for the case that it was masked.
struct StagedOutcome {
  Id kept = none, masked = none;
};

// Holds the staging buffers of a step; none where the program has no use for one.
struct StagedValues {
  // These go in, one set a microbatch.
  Id tokens = none, targets = none, samples = none;
  Id groups = none;  // groups of targets, if each group has its own loss
  // These go in as fp64 scalars. Each rank has its own `counted` (targets that count) and `stop`; all ranks
  // know the others. `step` counts updates; where `halt` is not 0, the step is masked whatever it finds.
  StagedOutcome lr, step, halt;
  StagedOutcome go;          // 0 where `halt` is not, else 1: set if updates do not wait for the norm
  StagedOutcome loss_scale;  // set if the program scales the loss
  Id seed = none, counted = none, stop = none;
  Id inv_sequences = none;  // 1 / sequences of the step, if the program reads it
  // These come out as fp64 scalars, over all ranks.
  Id loss_sum = none, grad_norm = none, keep = none, all_counted = none, any_stop = none;
  // This comes out by trained tensor: how many elements of its gradient are not finite, where keep is 0.
  Id non_finite = none;
  // These come out of a program that generates: by row and token of the vocabulary.
  Id logits = none;
  // This comes out: what ops have counted (ProgramApi::tally), over all ranks.
  struct Tally {
    Id sum = none, reported = none;
  };
  std::vector<Tally> tallies;
  Id losses = none;    // comes out: the loss of each group of targets and their number, over all ranks
  Id position = none;  // first position; none: sequences are whole
  // These scalars are listed by axis.
  std::vector<Id> first;
};
StagedValues staged_values(const Program& program);

// Replaces `keep` and `clip` for updates on another device, if nothing is clipped and a step that is not
// finite ends the run: then a layer's update need not wait for the norm of all.
void update_before_norm(Program& program);
// Does the same for all updates: none waits for the end of a step, nor does the next step wait for whether
// this one is kept. A step that is not finite ends the run, which then does not say in which tensor.
void update_at_once(Program& program);
// Says whether updates do so: then a step that is not finite may have updated parameters.
bool updates_before_norm(const Program& program);

// ------------------------------------------------------------------- group losses
// Adds losses of a training step by groups of targets, such as those of a data set or of a role of
// conversations.

// These name the input that says which group each target is of, and the sum by group, [1, groups, 2], beside
// that of all.
inline constexpr const char* groups_input = "groups";
inline constexpr const char* group_sums = "step.losses";

// Declares the groups; it is called before add_step().
void declare_loss_groups(Program& program, std::int64_t groups);

// Has every op that adds to the loss add to the sums as well. It is called once the model's heads stand in
// the ops of their split form, before placement. Throws unsupported where an op adds to the loss that has no
// such form.
void sum_loss_by_group(Program& program);

}  // namespace prun
