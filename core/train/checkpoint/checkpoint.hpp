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
  std::filesystem::path run_folder;  // folder of the checkpoint's run, without links
  std::vector<Damaged> damaged;      // earlier candidates that cannot be trusted
  std::string note;                  // see note_without_latest()
};

// Loads the checkpoint that this rank goes on from, its part of every tensor; all ranks call it. `where` is a
// checkpoint, or a run folder: then its latest or, if that is damaged for any rank, the one before it. An
// Error says what cannot be trusted or does not fit the recipe, and nothing but memory has been changed then.
// `base` has what checkpoints leave to `model.init`, if they do.
LoadedCheckpoint load_checkpoint(const Assembly& assembly, const PlanMemory& memory,
                                 const std::filesystem::path& where, const Announce& others,
                                 const StartValues* base = nullptr);

// Loads for an assembly that trains nothing: it takes only parameters, whatever data they are for, or the
// states of that name in their place.
LoadedCheckpoint load_parameters(const Assembly& assembly, const PlanMemory& memory,
                                 const std::filesystem::path& where, const Announce& others,
                                 const StartValues* base = nullptr, const std::string& state = {});

// Throws if samples are counted in other sets than those of the checkpoint, and `run.allow_changed` does not
// say that this is meant.
void check_sets(const LoadedCheckpoint& loaded, std::span<const SetSize> sets, const Recipe& recipe);

// Checks before ranks start what load_checkpoint would throw on some rank, as far as headers tell, and throws
// it. Returns the checkpoint that they will go on from.
LoadedCheckpoint check_checkpoint(const Assembly& assembly, const std::filesystem::path& where);

}  // namespace prun
