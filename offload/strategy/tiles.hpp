// Divides updates of a segment into pieces: what a piece needs is moved to memory and back while the others'
// is not there.
#pragma once

#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// Holds ops of an update function that belong together, in its order.
using Tile = std::vector<Id>;

// Returns the ops that are no exchanges. When tiled, a tile has as many tensors as have no more bytes than
// the largest tensor, and never separates what an op makes from its readers; otherwise all are one tile.
std::vector<Tile> tiles_of(ProgramRef program, const std::vector<Id>& ops, bool tiled);

}  // namespace prun
