// Updates of whole tensors, where the tensors' state is kept in parts of a bucket. What ops do that are alike
// for all elements, one op does to the rank's part. What another op needs whole is gathered for the update,
// each tensor is taken out of it, and of what comes of it each rank takes its part. An op that says so
// (OpDef::dealt) one rank does for all: those of all layers are dealt to the ranks by what they cost, and a
// sum of one rank's result and the others' zeros hands it out. State of a shape of its own every rank has,
// and updates alike.
//
// The alternative, whole tensors in unequal parts, would leave ranks without any where they are more than a
// layer has tensors; this keeps parts equal, views as they are, and checkpoints too. It costs a gather and a
// reduction more a step, of what the op is given.
#pragma once

#include <string>

#include "placement/dealt_loads.hpp"
#include "program/update_form.hpp"

namespace prun {

// Equal texts: updates whose ops that are alike for all elements are the same.
std::string flat_form(const Program& program, Id parameter, const Update& update);

// Puts the update of the bucket in the place of those of its members, which it leaves to be erased.
void pack_whole_updates(Program& program, const Bucket& bucket, std::span<const Update> updates,
                        DealtLoads& loads);

}  // namespace prun
