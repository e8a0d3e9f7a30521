// What frames a step, and the values through which it meets the host.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

struct StepOptions {
  double clip = 0;           // global norm limit; 0: none
  bool scales_loss = false;  // by the runtime number `loss_scale`
};
void add_step(Program& program, const StepOptions& options);

// A runtime number that the host stages before each step; what each rank `counted` for itself is a partial
// sum.
Id add_staged_scalar(Program& program, const char* name, std::vector<Name> counted);

// Lets the host see the logits that each head gives: before placement. Throws unsupported where none does.
void add_logits(Program& program);

// Whether a rank is the first of an axis: a staged scalar, where a program asks for it.
Id add_first_of_axis(Program& program, const std::string& axis);

// A number as it is to be where the step before was kept, and where it was masked.
struct StagedOutcome {
  Id kept = none, masked = none;
};

// The staging buffers of a step; none where the program has no use for one.
struct StagedValues {
  // In, one a microbatch.
  Id tokens = none, targets = none, samples = none;
  Id groups = none;  // of targets, where their losses are told apart
  // In, fp64 scalars. `counted` (targets that count) and `stop` are a rank's own; the others every rank
  // knows. `step` counts updates; where `halt` is not 0, the step is masked whatever it finds.
  StagedOutcome lr, step, halt;
  StagedOutcome go;  // 0 where `halt` is not, else 1: of a program whose updates do not wait for the norm
  StagedOutcome loss_scale;  // of a program that scales the loss
  Id seed = none, counted = none, stop = none;
  Id inv_sequences = none;  // 1 / sequences of the step, where a program asks for it
  // Out, fp64 scalars, of all ranks.
  Id loss_sum = none, grad_norm = none, keep = none, all_counted = none, any_stop = none;
  // Out, by trained tensor: how many elements of its gradient are not finite, where keep is 0.
  Id non_finite = none;
  // Out, of a program that generates: by row and token of the vocabulary.
  Id logits = none;
  // Out: what ops have counted (ProgramApi::tally), of all ranks.
  struct Tally {
    Id sum = none, reported = none;
  };
  std::vector<Tally> tallies;
  Id losses = none;    // Out: the loss of each group of targets and their number, of all ranks
  Id position = none;  // none: sequences are whole
  // By axis.
  std::vector<Id> first;
};
StagedValues staged_values(const Program& program);

// What updates on another device are told instead of `keep` and `clip`, where nothing is clipped and a step
// that is not finite ends the run: then a layer's need not wait for the norm of all.
void update_before_norm(Program& program);
// The same of all updates: none waits for what a step ends with, nor does the next step for whether this one
// is kept. A step that is not finite ends the run, which does not tell then in which tensor.
void update_at_once(Program& program);
// Whether they do: of a step that is not finite, parameters may have been updated.
bool updates_before_norm(const Program& program);

}  // namespace prun
