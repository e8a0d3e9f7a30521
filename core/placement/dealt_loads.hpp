// Assigns ops that one rank runs for all (OpDef::dealt) to ranks, so that the most loaded rank has the least
// work. Example: four layers with one Muon op each, on four ranks: rank 0 runs it for layer 0, rank 1 for
// layer 1. A further op starts at the rank that keeps the largest load smallest.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "program/mesh.hpp"

namespace prun {

// FLOPs assigned to each rank of an axis so far.
using DealtLoads = std::map<AxisId, std::vector<double>>;

// Assigns one op of `layers` layers round-robin to consecutive ranks. Returns the rank of the first layer and
// adds the cost to `loads`.
std::size_t deal(std::vector<double>& loads, std::int64_t layers, double cost);

}  // namespace prun
