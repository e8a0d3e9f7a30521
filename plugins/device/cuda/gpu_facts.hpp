// Finds which GPU is this rank's, and what must be known of it before anything runs there.
#pragma once

#include <cstdint>
#include <string>

#include "libraries.hpp"

namespace prun::cuda {

// Holds what recipe and launcher say of it.
struct GpuSettings {
  bool chosen = false;  // by the recipe: `ordinal` is its number
  bool shares = false;
  int local_rank = 0, local_ranks = 1;
  int ordinal = 0;
  std::int64_t planned_bytes = 0;  // that plans count on; 0: what it has
  int planned_units = 0;
  std::string planned_gpu;
  double peak_flops = 0;  // 0: known by its name
};

struct GpuFacts {
  int ordinal = 0;
  std::string name, arithmetic, unit;
  int units = 0;
  std::int64_t memory_bytes = 0;  // this rank's
  bool absent = false;
  int sharers = 1;
  double peak_flops = 0;
};

// What is known without a GPU is that there is none. Refuses a rank that there is no GPU for.
GpuFacts facts_of_gpu(const GpuSettings& settings, const Libraries& libraries);

}  // namespace prun::cuda
