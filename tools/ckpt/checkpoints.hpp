// Lists, describes, compares, rewrites and removes checkpoints for prun ckpt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {

// Lists the checkpoints in the folder of a run, those saved last first, a line each; damaged ones are named.
std::string list_checkpoints(const std::filesystem::path& run_folder);

std::string checkpoints_json(const std::filesystem::path& run_folder);

// Describes a checkpoint: its manifest, and its tensors. With `recipe` it returns the recipe that the
// checkpoint was saved with, instead.
std::string describe_checkpoint(const std::filesystem::path& checkpoint, bool recipe);

std::string checkpoint_json(const std::filesystem::path& checkpoint);

// Compares every byte of one checkpoint, or of all in the folder of a run, with its checksums.
struct CheckpointVerdict {
  std::filesystem::path checkpoint;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;             // counts bytes of the tensors
  std::vector<std::string> troubles;  // empty where all is as it was written
};
std::vector<CheckpointVerdict> verify_checkpoints(const std::filesystem::path& where);
std::string to_json(const std::vector<CheckpointVerdict>& verdicts);

struct CheckpointDifference {
  std::string text;
  bool tensors_differ = false;
};
CheckpointDifference compare_checkpoints(const std::filesystem::path& before,
                                         const std::filesystem::path& after);

// Writes the same checkpoint as `files` files, each of whole tensors, in a folder that does not exist yet.
void reshard_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        std::int64_t files);

// Removes checkpoints as a run would that has these keys; returns which. Throws bad_input while a run works
// in the folder; it waits for another process that prunes there.
std::vector<std::filesystem::path> prune_checkpoints(const std::filesystem::path& run_folder, Keep keep);

}  // namespace prun
