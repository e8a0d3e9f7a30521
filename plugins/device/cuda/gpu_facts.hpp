// Finds which GPU is this rank's, and what must be known of it before anything runs there.
#pragma once

#include <cstdint>
#include <string>

#include "libraries.hpp"

namespace prun::cuda {

// Holds what the recipe and the launcher say about the GPU.
struct GpuSettings {
  bool chosen = false;  // says that the recipe names the GPU, as `ordinal`
  bool shares = false;
  int local_rank = 0, local_ranks = 1;
  int ordinal = 0;
  std::int64_t planned_bytes = 0;  // is what plans count on; 0: all that the GPU has
  int planned_units = 0;
  std::string planned_gpu;
  double peak_flops = 0;  // 0: it follows from the GPU's name
};

struct GpuFacts {
  int ordinal = 0;
  std::string name, arithmetic, unit;
  int units = 0;
  std::int64_t memory_bytes = 0;  // counts this rank's part
  bool absent = false;
  int sharers = 1;
  double peak_flops = 0;
};

// Returns facts that say so where there is no GPU. Refuses a rank that no GPU is left for.
GpuFacts facts_of_gpu(const GpuSettings& settings, const Libraries& libraries);

}  // namespace prun::cuda
