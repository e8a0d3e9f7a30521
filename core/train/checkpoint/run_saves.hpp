// Knows where a run saves itself, and what it has saved so far.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_saver.hpp"

namespace prun {

class RunSaves {
 public:
  // `from` is the checkpoint that the run goes on from, if it does. `sets` describe its samples, `plugins` is
  // from plugin_record(), `base` is that of the manifest.
  RunSaves(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate,
           const std::optional<LoadedCheckpoint>& from, std::vector<SetSize> sets, std::string plugins,
           Announce others, std::function<void()> saving, std::string base = {});

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& plugins() const { return plugins_; }
  // Makes the run's folder its own; throws if it is another's. The first rank does so, before anything is
  // written there; `step` counts the steps done so far.
  void claim_folder(std::int64_t step);
  // These do the same as CheckpointSaver's.
  void make_room() { saver().make_room(); }
  void try_out() { saver().try_out(folder_); }
  void begin(const Progress& progress, const SavedSums& sums);
  void finish() { saver().finish(); }
  std::optional<std::filesystem::path> saved() { return saver_ ? saver_->saved() : std::nullopt; }

 private:
  CheckpointSaver& saver();
  void move_damaged() const;

  const Assembly& assembly_;
  const PlanMemory& memory_;
  SaveGate& gate_;
  const std::optional<LoadedCheckpoint>& from_;
  const std::filesystem::path folder_;
  const std::vector<SetSize> sets_;
  const std::string plugins_;
  const Announce others_;
  const std::function<void()> saving_;
  const std::string base_;
  RunIdentity run_;                       // set on the first rank, once it has claimed the folder
  std::int64_t saves_ = 0;                // saves of the run so far, set likewise
  std::optional<CheckpointSaver> saver_;  // made once it is needed
};

}  // namespace prun
