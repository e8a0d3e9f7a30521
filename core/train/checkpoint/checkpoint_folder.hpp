// Handles the checkpoints in a run folder: which there are, whose they are, which one a run resumes from,
// which are removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/manifest.hpp"

namespace prun {

// ------------------------------------------------------------------- checkpoint folder

// Returns a path such as "runs/NAME/step-00000100".
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::int64_t step);
// Returns the step of a folder by its name, or nothing for "step-best".
std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);
// Returns the checkpoint that a checkpoint's or a run's folder means: for a run, its latest or, if the run
// was killed before it could write which that is, the whole one that was saved last.
std::filesystem::path find_checkpoint(const std::filesystem::path& where);
// Returns a sentence for the user if `latest` is missing; otherwise an empty text.
std::string note_without_latest(const std::filesystem::path& where);

// Returns the checkpoints that a run may go on from, best first: the one that is named or, for a run's
// folder, its latest, those whose manifest is damaged, so that they are noticed, and what the run saved
// before.
std::vector<std::filesystem::path> checkpoints_from(const std::filesystem::path& where);
// Returns the manifest of the best of them whose manifest can be read.
std::optional<Manifest> manifest_to_go_on_from(const std::filesystem::path& where);

// Returns all that are in the folder of a run, including damaged ones and those without a manifest, those
// saved last first; or the one that is named.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& where);

// Throws bad_input if the folders of a checkpoint are those of another step or run.
void check_belongs(const std::filesystem::path& checkpoint, const Manifest& manifest);

// Throws bad_input if something that is not a checkpoint of this run stands in the place of one, so that it
// could not be saved there: at this step, or at any from it on.
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
  std::int64_t last = 0;   // number of those saved last; 0: all
  std::int64_t every = 0;  // steps that are multiples of it stay too; 0: no others
};
// Removes the other checkpoints; returns which.
std::vector<std::filesystem::path> remove_old_checkpoints(const std::filesystem::path& run_folder,
                                                          const RunIdentity& run, Keep keep);

// ------------------------------------------------------------------- best checkpoint
// Keeps track of the checkpoint with the lowest validation loss of a run: `best` in its folder leads to it,
// so that it is named as any other is, and best.json states that loss.

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

// ------------------------------------------------------------------- kernel choices
// Keeps what devices choose by measuring, such as the algorithms of matrix products: bits depend on it, so a
// run that goes on must choose as it did before, whatever measuring finds today.

// Returns the choices of all devices of this rank, once they have bound what they run: lines, each with its
// end.
std::string kernel_choices(const Assembly& assembly);

// Tells the devices, before they bind anything, what the checkpoint that the recipe goes on from has of them;
// returns the assembly. What is wrong with a checkpoint is reported when it is loaded.
const Assembly& with_kernel_choices(const Assembly& assembly);

// ------------------------------------------------------------------- plugin record
// Records which code takes part in a run.

// Returns JSON with kind, name, version, path, digest and build of each plugin loaded: enough to distinguish
// two runs.
std::string plugin_record(const PluginHost& plugins);

}  // namespace prun
