// Checkpoints: a folder a step, complete or absent.
//   runs/NAME/step-00000100/rank-00000.safetensors
//   runs/NAME/latest                                   names the newest
// Where every rank holds the same, the first one's file is all there is, and any number of ranks can go on
// from it. Where ranks hold parts, each writes a file, and the same mesh and strategies go on from them.
#pragma once

#include <filesystem>
#include <functional>

#include "assemble/assembly.hpp"
#include "execute/executor.hpp"

namespace prun {

// Where the checkpoint of a step lies.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);

// What a run needs besides tensors to go on as if it had never stopped.
struct Progress {
  std::int64_t step = 0;     // steps done
  std::int64_t updates = 0;  // of which the optimizer took
  std::int64_t samples = 0;  // trained on so far
};

// What a rank tells all others; each gets what each has said, in the order of ranks. Empty: one rank alone.
using Announce = std::function<std::vector<std::string>(std::string_view channel, std::string_view mine)>;

// Returns the folder written; all ranks call it. `keep` > 0 removes all but that many newest checkpoints.
std::filesystem::path save_checkpoint(const Assembly& assembly, Executor& executor, const Progress& progress,
                                      const std::filesystem::path& run_folder, std::int64_t keep,
                                      const Announce& announce);

// `where` is a checkpoint or a run folder (then its latest). Every tensor must be there with its type and
// shape; an Error says which is not, and nothing has been changed then but memory.
Progress load_checkpoint(const Assembly& assembly, Executor& executor, const std::filesystem::path& where);

// Throws what load_checkpoint would throw on some rank, as far as headers tell: for all ranks, before they
// start.
void check_checkpoint(const Assembly& assembly, const std::filesystem::path& where);

}  // namespace prun
