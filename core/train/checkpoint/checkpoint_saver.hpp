// Saves while training goes on: a thread writes a rank's part of the state, as it was between two steps, into
// its file (saved_state.hpp). The first rank's thread puts the checkpoint in place once all ranks' files are
// there.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/saved_state.hpp"
#include "train/checkpoint/staged_checkpoint.hpp"

namespace prun {

class CheckpointSaver {
 public:
  // `plugins` is from plugin_record(); steps wait at `gate` for what is to be read; `saving` may be empty,
  // and any thread calls it when a save advances.
  CheckpointSaver(const Assembly& assembly, const PlanMemory& memory, SaveGate& gate, std::string plugins,
                  Announce others, std::function<void()> saving);
  // Gives up what is being written, which leaves nothing.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Allocates the memory that a save takes.
  void make_room() { state_->make_room(); }
  // Every rank calls these three, in the same order. This one finds out before the first step, not at the
  // first save, whether there is room for a save that may be written.
  void try_out(const std::filesystem::path& run_folder);
  // Begins a save, while no step runs; steps may follow it. It waits for the save before. A checkpoint that
  // the run saved at this step before is replaced; anything else there is refused.
  void begin(const SavePlace& place, const Progress& progress, const SavedSums& sums);
  // Waits until what was begun is in place.
  void finish();

  // Returns, on the first rank, what has been put in place since the last call. Throws what went wrong.
  std::optional<std::filesystem::path> saved();

 private:
  std::vector<std::string> meet(std::string_view channel, const std::string& mine) const;
  void write(const std::stop_token& stop);
  void await_all();
  bool wait_for_files(const std::stop_token& stop);
  void rethrow() const;

  const Assembly& assembly_;
  const std::string plugins_;
  const Announce others_;
  const std::function<void()> saving_;
  const std::unique_ptr<SavedState> state_;  // state of this rank

  // These belong to the save that was begun last.
  StagedCheckpoint save_;
  bool begun_ = false;  // whether a save was begun and not finished

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool written_ = false;     // whether this rank's file is written
  std::int64_t pieces_ = 0;  // pieces of it that are written
  std::exception_ptr trouble_;
  std::optional<std::filesystem::path> in_place_;
  std::jthread thread_;
};

}  // namespace prun
