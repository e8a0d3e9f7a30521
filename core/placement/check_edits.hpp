// Checks ops that a strategy adds or changes after placement. The results of an op that it adds get the
// placement that they would have had if the op had been there before; those of one that it changes must keep
// theirs. An op is refused if that needs a collective that the program does not have.
#pragma once

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Forgets edits before the strategy works.
  explicit EditCheck(Program& program) : program_(program), first_value_(program.value_count()) {
    program_.take_edits();
  }

  // Derives the placement of all that ops write which have been added since. Throws an Error that names op,
  // operand and axis where an edited op reads a value otherwise than its rule allows.
  void run() const;

 private:
  void check_tallies() const;

  Program& program_;
  Id first_value_;  // the first value that the strategy may have added
};

}  // namespace prun
