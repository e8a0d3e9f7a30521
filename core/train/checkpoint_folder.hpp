// The checkpoints in a run folder: which there are, whose they are, which goes on, which goes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/safetensors.hpp"
#include "train/run_identity.hpp"

namespace prun {

// What a run needs besides tensors to go on as if it had never stopped.
struct Progress {
  std::int64_t step = 0;     // steps done
  std::int64_t updates = 0;  // of which the optimizer took
  std::int64_t samples = 0;  // trained on so far
};

// What a file of a checkpoint says of itself.
struct CheckpointHead {
  RunIdentity run;
  std::int64_t save = 0;  // counts the saves of the run: going back to a step and on again gives a step twice
  Progress progress;
  std::int64_t rank = 0;  // that wrote it
  std::string layout;     // which ranks hold what
  std::string parts;      // digest of which elements of which tensors the file holds
};

// The metadata of a file. Reading throws bad_input for anything but a file of a checkpoint in our format.
SafetensorsMetadata to_metadata(const CheckpointHead& head);
CheckpointHead read_head(const SafetensorsFile& file);

// "runs/NAME/step-00000100"
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);
// "rank-00000.safetensors"
std::string rank_file_name(std::int64_t rank);

// The checkpoint that is meant by a checkpoint's or a run's folder (then its latest).
std::filesystem::path find_checkpoint(const std::filesystem::path& where);

// Throws bad_input where the folders that a file lies in are those of another step or run.
void check_belongs(const SafetensorsFile& file, const CheckpointHead& head);

// Throws bad_input where something stands in the place of a checkpoint that is not one of this run, so that
// it could not be saved there: at this step, or at any from it on.
void check_place(const std::filesystem::path& run_folder, const RunIdentity& run, std::int64_t step);
void check_places_from(const std::filesystem::path& run_folder, const RunIdentity& run, std::int64_t step);

// The number of the run's last save; 0 before there is one.
std::int64_t last_save(const std::filesystem::path& run_folder, const RunIdentity& run);

// Removes all checkpoints of the run but the `keep` that were saved last and the one that `latest` names.
void remove_old_checkpoints(const std::filesystem::path& run_folder, const RunIdentity& run,
                            std::int64_t keep);

}  // namespace prun
