// How many ranks have a GPU together, where a recipe lets them.
#pragma once

#include <string>

namespace prun::cuda {

// Of the ranks of a host that sees so many GPUs, those that the first GPU in use has. `chosen`: all take the
// GPU that the recipe names; else each the one of its number, counted on from the first.
constexpr int sharers_of(int local_ranks, int gpus, bool chosen) {
  return chosen ? local_ranks : (local_ranks + gpus - 1) / gpus;
}

// What its time is measured under: that of a GPU which others use as well is not that of a whole one.
inline std::string name_of(const std::string& gpu, int sharers) {
  return sharers == 1 ? gpu : gpu + " shared by " + std::to_string(sharers) + " ranks";
}

}  // namespace prun::cuda
