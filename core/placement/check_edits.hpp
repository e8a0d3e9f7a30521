// Checks ops that a strategy adds after placement: their results get the placement that they would have had
// if the ops had been there before. An op is refused if that needs a collective that the program does not
// have.
#pragma once

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Remembers how many ops and values there are before the strategy works.
  explicit EditCheck(Program& program)
      : program_(program), first_value_(program.value_count()), first_op_(program.op_count()) {}

  // Derives the placement of all that ops write which have been added since. Throws an Error that names op,
  // operand and axis where such an op reads a value otherwise than its rule allows.
  void run() const;

 private:
  void check_tallies() const;

  Program& program_;
  Id first_value_, first_op_;  // those that the strategy may have added begin here
};

}  // namespace prun
