// Checkpoints: a folder a step, complete or absent.
//   runs/NAME/run.id                                   whose they are
//   runs/NAME/step-00000100/rank-00000.safetensors
//   runs/NAME/latest                                   names the one saved last
// Where every rank holds the same, the first one's file is all there is, and any number of ranks can go on
// from it. Where ranks hold parts, each writes a file, and the same mesh and strategies go on from them.
// Every byte of a file is covered by checksums (see base/safetensors.hpp), which are compared when it is
// read.
#pragma once

#include <filesystem>
#include <functional>

#include "assemble/assembly.hpp"
#include "execute/plan_memory.hpp"
#include "train/checkpoint_folder.hpp"

namespace prun {

// What a rank tells all others; each gets what each has said, in the order of ranks. Empty: one rank alone.
using Announce = std::function<std::vector<std::string>(std::string_view channel, std::string_view mine)>;

// Where a run saves and as whom. The first rank knows; the others are told.
struct SavePlace {
  std::filesystem::path run_folder;
  RunIdentity run;
  std::int64_t save = 0;  // the number of this save within the run
  std::int64_t keep = 0;  // this many of the run's checkpoints, those saved last; 0: all
};

// Returns the folder written; all ranks call it. A checkpoint that the run saved at this step before is
// replaced; where something else stands, it is refused.
std::filesystem::path save_checkpoint(const Assembly& assembly, const PlanMemory& memory,
                                      const Progress& progress, const SavePlace& place,
                                      const Announce& announce);

struct LoadedCheckpoint {
  CheckpointHead head;
  std::filesystem::path file;        // this rank's
  std::filesystem::path run_folder;  // where the checkpoint lies, without links
  std::string digest;                // of all that is in the file, where all ranks have the same one
};

// The file that this rank goes on from, every tensor read; `where` is a checkpoint or a run folder (then its
// latest). An Error says what cannot be trusted or does not fit the plan, and nothing has been changed then
// but memory.
LoadedCheckpoint load_checkpoint(const Assembly& assembly, const PlanMemory& memory,
                                 const std::filesystem::path& where);

// Throws what load_checkpoint would throw on some rank, as far as headers tell: for all ranks, before they
// start.
void check_checkpoint(const Assembly& assembly, const std::filesystem::path& where);

}  // namespace prun
