// Keeps track of the checkpoint with the lowest validation loss of a run: `best` in its folder leads to it,
// so that it is named as any other is, and best.json states that loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace prun {

struct BestCheckpoint {
  std::int64_t step = 0;
  double loss = 0;
};

// Returns nothing if there is none, or none that was written whole.
std::optional<BestCheckpoint> read_best(const std::filesystem::path& run_folder);
// Throws bad_input if something else has a name that the best checkpoint needs.
void check_best_places(const std::filesystem::path& run_folder);
// Sets the best checkpoint, which is in place. Checks those names.
void set_best(const std::filesystem::path& run_folder, const BestCheckpoint& best);

}  // namespace prun
