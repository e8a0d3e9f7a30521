// Computes how many ranks share a GPU, where a recipe lets them.
#pragma once

#include <string>

namespace prun::cuda {

// Returns how many ranks of a host that sees `gpus` GPUs share the first GPU in use. With `chosen` all take
// the GPU that the recipe names; else each takes the one of its number, counted on from the first.
constexpr int sharers_of(int local_ranks, int gpus, bool chosen) {
  return chosen ? local_ranks : (local_ranks + gpus - 1) / gpus;
}

// Returns the name that its times are kept under: a shared GPU has other times than a whole one.
inline std::string name_of(const std::string& gpu, int sharers) {
  return sharers == 1 ? gpu : gpu + " shared by " + std::to_string(sharers) + " ranks";
}

}  // namespace prun::cuda
