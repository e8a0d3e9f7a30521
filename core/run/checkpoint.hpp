// Checkpoints: a folder a step, one safetensors file a rank, complete or absent.
//   runs/NAME/step-00000100/rank-00000.safetensors
//   runs/NAME/latest                                   names the newest
#pragma once

#include <filesystem>

#include "run/assembly.hpp"
#include "run/executor.hpp"

namespace prun {

// Where the checkpoint of a step lies.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);

// What a run needs besides tensors to go on as if it had never stopped.
struct Progress {
  std::int64_t step = 0;     // steps done
  std::int64_t updates = 0;  // of which the optimizer took
  std::int64_t samples = 0;  // trained on so far
};

// Returns the folder written. `keep` > 0 removes all but that many newest checkpoints.
std::filesystem::path save_checkpoint(const Assembly& assembly, Executor& executor, const Progress& progress,
                                      const std::filesystem::path& run_folder, std::int64_t keep);

// `where` is a checkpoint or a run folder (then its latest). Every tensor must be there with its type and
// shape; an Error says which is not, and nothing has been changed then but memory.
Progress load_checkpoint(const Assembly& assembly, Executor& executor, const std::filesystem::path& where);

}  // namespace prun
