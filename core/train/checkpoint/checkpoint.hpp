// Checkpoints: a folder a step, complete or absent.
//   runs/NAME/run.id                                   whose they are
//   runs/NAME/step-00000100/manifest.json              see train/manifest.hpp
//   runs/NAME/step-00000100/rank-00000.safetensors     see train/checkpoint_files.hpp
//   runs/NAME/latest                                   names the one saved last
// Files hold parts of whole tensors, whose names and shapes are the same in every layout. So any mesh, with
// any strategies, on any device goes on from any other's: each rank reads the elements that it holds.
#pragma once

#include <filesystem>
#include <functional>

#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

// Sends a rank's text to all others; each gets all texts, in the order of ranks. Empty means one rank alone.
using Announce = std::function<std::vector<std::string>(std::string_view channel, std::string_view mine)>;

struct LoadedCheckpoint {
  struct Damaged {
    std::filesystem::path folder;
    std::string why;
  };

  Manifest manifest;
  std::filesystem::path folder;
  std::filesystem::path run_folder;  // where the checkpoint lies, without links
  std::vector<Damaged> damaged;      // those that came first and cannot be trusted
  std::string note;                  // see note_without_latest()
};

// The checkpoint that this rank goes on from, its part of every tensor read; all ranks call it. `where` is a
// checkpoint, or a run folder: then its latest or, where that is damaged for any rank, the one before it. An
// Error says what cannot be trusted or does not fit the recipe, and nothing has been changed then but memory.
// `base`: has what checkpoints leave to `model.init`, if they do.
LoadedCheckpoint load_checkpoint(const Assembly& assembly, const PlanMemory& memory,
                                 const std::filesystem::path& where, const Announce& others,
                                 const StartValues* base = nullptr);

// Loads for an assembly that trains nothing: parameters are all that it takes, whatever data they are for.
LoadedCheckpoint load_parameters(const Assembly& assembly, const PlanMemory& memory,
                                 const std::filesystem::path& where, const Announce& others,
                                 const StartValues* base = nullptr, Weights which = Weights::trained);

// Throws where samples are counted among others than those of the checkpoint, and `run.changed` does not say
// that this is meant.
void check_sets(const LoadedCheckpoint& loaded, std::span<const SetSize> sets, const Recipe& recipe);

// Throws what load_checkpoint would throw on some rank, as far as headers tell: for all ranks, before they
// start. The one that they will go on from.
LoadedCheckpoint check_checkpoint(const Assembly& assembly, const std::filesystem::path& where);

}  // namespace prun
