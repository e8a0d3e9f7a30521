// Updates of a segment, in pieces: what a piece needs comes to memory and goes back while the others' does
// not.
#pragma once

#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// Ops of an update function that belong together, in its order.
using Tile = std::vector<Id>;

// The ops that are no exchanges. Tiled: as many tensors to a tile as have no more bytes than the one that has
// most, and never parted what an op makes from who reads it; otherwise all are one tile.
std::vector<Tile> tiles_of(ProgramRef program, const std::vector<Id>& ops, bool tiled);

}  // namespace prun
