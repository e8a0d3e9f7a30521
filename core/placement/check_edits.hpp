// Checks ops that a strategy adds behind placement: they are placed as they would have been if they had been
// there before, and refused where that needs an exchange that is not there.
#pragma once

#include <set>

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Remembers the ops as they are before the strategy works.
  explicit EditCheck(Program& program);

  // Derives the placement of all that ops write which have been added since. Throws an Error that names op,
  // operand and axis where such an op reads a value otherwise than its rule allows.
  void run() const;

 private:
  bool is_added(Id op) const;
  std::set<Id> added() const;
  void check_tallies() const;

  Program& program_;
  Id first_value_;       // the first value that the strategy may have added
  std::set<Id> before_;  // ops
};

}  // namespace prun
