// Rewrites updates of whole tensors, if the tensors' state is kept in parts of a bucket. Where ops treat all
// elements alike, one op does the same to the rank's part. What another op needs whole is gathered for the
// update, each tensor is taken out of it, and each rank takes its part of the result. An op that says so
// (OpDef::dealt) is run by one rank for all: those of all layers are dealt to the ranks by what they cost,
// and a sum of one rank's result and the others' zeros hands it out. State with a shape of its own is on
// every rank, which updates it alike.
//
// The alternative, whole tensors in unequal parts, would leave ranks without any if there are more ranks than
// a layer has tensors; this keeps parts equal, views as they are, and checkpoints too. It costs one more
// gather and reduction a step, of the op's operands.
#pragma once

#include <string>

#include "placement/dealt_loads.hpp"
#include "program/update_form.hpp"

namespace prun {

// Returns a text of the ops that are alike for all elements: equal texts mean that these ops of two updates
// are the same.
std::string flat_form(const Program& program, Id parameter, const Update& update);

// Puts the update of the bucket in place of those of its members, whose ops are left for the caller to erase.
void pack_whole_updates(Program& program, const Bucket& bucket, std::span<const Update> updates,
                        DealtLoads& loads);

}  // namespace prun
