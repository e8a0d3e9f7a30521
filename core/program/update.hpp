// States what passes need to know of updates: the form of an optimizer's ops. Example: the update of a
// weight by AdamW is one op and two states, and that of another weight has the same form.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Describes the update of a parameter independently of the value it updates: by this, edits that strategies
// made to one update are found, and made to another that stands in for it or beside it.

struct Update {
  std::vector<Id> ops;
  std::vector<Id> own;  // values that it shares with no other update
  std::string form;     // equal texts mean the same update, of other values
};

// Returns the update of a parameter, or of the bucket that it is packed in: all ops of its segment's `update`
// that touch its own values, or follow from them.
Update update_of(const Program& program, Id parameter);
Update update_of(const Program& program, const Bucket& bucket);

// Refuses a trained parameter that no op of its update changes.
void check_updates(const Program& program);

// Refuses `speculate` or `settle` alone, and those that do not repeat the ops of `update`: edits of these
// would be lost.
void check_settled(const Program& program);

// Refuses an update that does not remove the scale of the loss, where there is one: the clip factor does
// that.
void check_scaled_updates(const Program& program);

// Applies to `fresh`, as the optimizer wrote it, what strategies have made of the update of `parameter`:
// other numbers in its attributes, other scalars as operands. Refuses edits that cannot be made to the ops of
// `fresh`.
void carry_edits(Program& program, Id parameter, const Update& edited, const Update& fresh);
// Carries attributes alone, where `fresh` has no exchanges yet, and may do without those of `edited`.
void carry_attributes(Program& program, Id parameter, const Update& edited, const Update& fresh);

}  // namespace prun
