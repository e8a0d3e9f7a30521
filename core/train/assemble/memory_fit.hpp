// Checks whether a rank has the memory for its plans, and makes the refusal if it has not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"

namespace prun {

// Returns what the process holds of the recipe's data.
std::int64_t data_bytes_of(const Assembly& assembly, PluginHost& plugins);
// Returns what a rank's process of each stage needs beside its plan; the result is the same everywhere: ranks
// must agree on what fits. Devices and drives that a plan uses count, so each plan that is tried has its own.
std::vector<ProcessNeed> process_needs_of(const Assembly& assembly, PluginHost& plugins,
                                          std::int64_t data_bytes);
// Gives saves as much as they can use of what plans leave free, if the recipe does not say how much. What
// speculative updates hold counts as free: they come behind saves.
void leave_rest_to_saves(const Assembly& assembly, std::vector<ProcessNeed>& needs);

// Returns what plans may take of the recipe's device. What the recipe states is the plan's alone; if it
// states nothing, the plan shares with the process.
std::int64_t memory_limit(const Assembly& assembly);
// Returns the bytes of the largest plan.
std::int64_t bytes_needed(const Assembly& assembly);
// Returns the most speculative updates that hosts have memory for beside all else and what saves use; at most
// as many as are planned.
std::int32_t speculated_that_fit(const Assembly& assembly);
// Says what another device lacks for the plans; an empty text means nothing.
std::string missing_further_memory(const Assembly& assembly);

// Holds the findings while no plan fitted.
struct NotFitting {
  std::int64_t needed = 0, least = 0;  // bytes of the first plan, and of the smallest
  std::string further;                 // what the first one that fits the first device lacked, in words
  std::string refused;                 // why the first one that strategies would have chosen was refused
};
// Throws DoesNotFit. `last` is the last plan that was tried.
[[noreturn]] void refuse_memory(const Assembly& last, const NotFitting& tried);

}  // namespace prun
