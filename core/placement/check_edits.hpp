// Checks ops that a strategy adds or changes after placement. The results of an op that it adds get the
// placement that they would have had if the op had been there before; those of one that it changes must keep
// theirs. What all ranks have alike counts once where it joins a sum of the ranks' summands. An op is refused
// if it needs a collective that the program does not have.
#pragma once

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Notes from here on what the strategy edits.
  explicit EditCheck(Program& program) : program_(program) { program_.begin_edits(); }

  // Derives the placement of all that ops write which have been added since. Throws an Error that names op,
  // operand and axis where an op reads a value otherwise than its rule allows. `collectives` says that they
  // are those of flat parameters, which check_collectives() and the plan's proof check.
  void run(bool collectives = false) const;

 private:
  void check_tallies() const;

  Program& program_;
};

// Refuses flat parameters whose gradients are not summed once over each axis that has summands of them, or
// that nobody gathers, once phase `collectives` is over, and forgets the list of them. The plan's proof
// checks what the collectives do to each byte.
void check_collectives(Program& program);

}  // namespace prun
