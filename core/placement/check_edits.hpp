// Checks ops that a strategy adds or changes after placement. An added op's results get the placement that
// they would have had in place_on_mesh(); a changed op's results must keep theirs. A replicated value that
// joins a partial sum counts once. An op that needs a collective the program does not have is refused: prun
// inserts none here. check_edits.cpp begins with an example.
#pragma once

#include "program/step_program.hpp"

namespace prun {

class EditCheck {
 public:
  // Records from here on what the strategy edits.
  explicit EditCheck(Program& program) : program_(program) { program_.begin_edits(); }

  // Places the results of all added ops. Throws an Error that names op, operand and axis if an op reads a
  // value against its rule. `collectives`: the ops are collectives of flat parameters, which
  // check_collectives() and the plan's proof check.
  void run(bool collectives = false) const;

 private:
  void check_tallies() const;

  Program& program_;
};

// After phase `collectives`, refuses flat parameters whose gradients are not summed exactly once over each
// axis, or that no op gathers, and clears the list of flat parameters. The plan's proof checks each byte.
void check_collectives(Program& program);

}  // namespace prun
