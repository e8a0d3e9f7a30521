// Deals ops of whole tensors that one rank does for all (OpDef::dealt) to the ranks by their cost.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "program/mesh.hpp"

namespace prun {

// Holds what ranks of an axis have been dealt so far, in FLOPs of each.
using DealtLoads = std::map<AxisId, std::vector<double>>;

// Deals one op of so many layers to consecutive ranks in turn, so that the largest load is smallest. Returns
// which rank has the first, and adds to the loads, of which there is one for each rank.
std::size_t deal(std::vector<double>& loads, std::int64_t layers, double cost);

}  // namespace prun
