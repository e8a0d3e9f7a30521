// Handles the checkpoints in a run folder: which there are, whose they are, which one a run resumes from,
// which are removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/manifest.hpp"

namespace prun {

// "runs/NAME/step-00000100"
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);
// Returns the step of a folder by its name; nothing for "step-best".
std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);
// The checkpoint that is meant by a checkpoint's or a run's folder: then its latest or, where the run was
// killed before it could write which that is, the whole one that was saved last.
std::filesystem::path find_checkpoint(const std::filesystem::path& where);
// Returns a sentence for the user where that is so; empty otherwise.
std::string note_without_latest(const std::filesystem::path& where);

// Those that a run may go on from, best first: the one that is named or, of a run's folder, its latest, those
// whose manifest is damaged, so that they are noticed, and what the run saved before.
std::vector<std::filesystem::path> checkpoints_from(const std::filesystem::path& where);
// The manifest of the best of them of which it can be read.
std::optional<Manifest> manifest_to_go_on_from(const std::filesystem::path& where);

// Returns all that are in the folder of a run, damaged ones and those without a manifest included, those
// saved last first; or the one that is named.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& where);

// Throws bad_input where the folders that a checkpoint lies in are those of another step or run.
void check_belongs(const std::filesystem::path& checkpoint, const Manifest& manifest);

// Throws bad_input where something stands in the place of a checkpoint that is not one of this run, so that
// it could not be saved there: at this step, or at any from it on.
void check_place(const std::filesystem::path& run_folder, const RunIdentity& run, std::int64_t step);
void check_places_from(const std::filesystem::path& run_folder, const RunIdentity& run, std::int64_t step);

// Describes a checkpoint of a run, as its manifest says.
struct OwnCheckpoint {
  std::filesystem::path path;
  std::int64_t save = 0, step = 0;
};
// Returns those of the run, the one saved last first.
std::vector<OwnCheckpoint> own_checkpoints(const std::filesystem::path& run_folder, const RunIdentity& run);

// Returns the number of the run's last save; 0 before there is one.
std::int64_t last_save(const std::filesystem::path& run_folder, const RunIdentity& run);

// Gives a damaged checkpoint another name, "step-00000100.damaged", after `latest` names the one that is used
// in its place.
void set_aside(const std::filesystem::path& damaged, const std::filesystem::path& used);

// Says which checkpoints of a run stay beside those that `latest` and `best` name.
struct Keep {
  std::int64_t last = 0;   // this many, those saved last; 0: all
  std::int64_t every = 0;  // and those whose step is a multiple of it; 0: no others
};
// Removes the others; returns which.
std::vector<std::filesystem::path> remove_old_checkpoints(const std::filesystem::path& run_folder,
                                                          const RunIdentity& run, Keep keep);

}  // namespace prun
