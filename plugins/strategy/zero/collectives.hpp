// Writes the collectives of sharded state, over what ProgramApi::shard_state has made flat.
#pragma once

#include "prun/strategy.hpp"

namespace prun::zero {

// Sums gradients over the ranks: each gets the sum of its shard.
void reduce_gradients(ProgramRef program, const std::vector<FlatParameter>& flat);

// Gathers parameters: before each use where they are sharded, otherwise behind their update.
void gather_parameters(ProgramRef program, const std::vector<FlatParameter>& flat);

// Returns attributes of a collective over these ranks.
inline AttrValue axis_of(AxisInfo ranks) { return {"axis", static_cast<double>(ranks.number)}; }
inline AttrValue parts_of(AxisInfo ranks) { return {"parts", static_cast<double>(ranks.extent)}; }

}  // namespace prun::zero
