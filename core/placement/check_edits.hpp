// Checks what a strategy has edited behind placement: ops that it added or changed are placed as they would
// have been if they had been there before, and refused where that needs an exchange that is not there.
#pragma once

#include <map>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Remembers the ops as they are before the strategy works.
  explicit EditCheck(Program& program);

  // Derives the placement of all that ops write which have been added or changed since. Throws an Error that
  // names op, operand and axis where an op reads a value otherwise than its rule allows.
  void run() const;

 private:
  struct Before {
    const OpDef* def;
    std::vector<Id> operands;
  };

  bool is_edited(Id op) const;
  void check_tallies() const;

  Program& program_;
  Id first_value_;  // the first value that the strategy may have added
  std::map<Id, Before> before_;
};

}  // namespace prun
