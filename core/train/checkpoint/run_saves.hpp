// Knows where a run saves itself, and what it has saved so far.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/durable_file.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/saved_state.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

// ------------------------------------------------------------------- run saves

// ------------------------------------------------------------ staged checkpoint

// Holds a checkpoint while ranks write their files of it: in a folder that no one else sees, which the first
// rank puts in place once all are there.

// States where a run saves and as which run. The first rank knows, and sends it to the others.
struct SavePlace {
  std::filesystem::path run_folder;
  RunIdentity run;
  std::int64_t save = 0;  // number of this save within the run
  Keep keep;
  std::vector<SetSize> sets;
  std::string base = {};  // text of the manifest's base
};

struct StagedCheckpoint {
  SavePlace place;
  Progress progress;
  KernelChoices choices = {};  // choices of all ranks
  std::filesystem::path staging = {};
  std::unique_ptr<DurableFolder> folder = {};  // folder, on the first rank

  // The first rank makes the folder; another checkpoint of that name is refused, unless this run saved it.
  void make_folder();
  std::filesystem::path file_of(int rank) const;
  // Is called on the first rank once all files are there, and returns where the checkpoint is from now on;
  // `plugins` is from plugin_record().
  std::filesystem::path put_in_place(const Assembly& assembly, const std::string& plugins);

 private:
  Manifest manifest(const Assembly& assembly, const std::string& plugins) const;
};

// ------------------------------------------------------------ checkpoint saver

// Saves while training goes on: a thread writes a rank's part of the state, as it was between two steps, into
// its file (saved_state.hpp). The first rank's thread puts the checkpoint in place once all ranks' files are
// there.
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

// ------------------------------------------------------------------- run start
// Fills a run's memory with what it begins from: the seed, the weights that model.init names, or the
// checkpoint that it goes on from.

class RunStart {
 public:
  RunStart(const Assembly& assembly, const PlanMemory& memory, PluginHost& plugins, const Announce& others,
           const LossScaler& scaler);

  const Progress& progress() const { return progress_; }
  const std::optional<LoadedCheckpoint>& loaded() const { return loaded_; }
  // Returns the base for manifests, on the first rank.
  const std::string& base() const { return base_; }
  // Returns what parameters started from if that is neither the seed nor a checkpoint to go on from, until
  // close_weights() is called.
  const StartValues* weights() const { return weights_.get(); }
  void close_weights() { weights_.reset(); }

  // Returns notes on what the run begins from, if that is not the seed; `plugins` is from plugin_record().
  std::vector<std::string> notes(const std::string& plugins) const;
  // Returns what is wrong with the checkpoint, or with those that were to come before it.
  std::vector<std::string> warnings() const;

 private:
  void initialize(const PlanMemory& memory, PluginHost& plugins);
  void load(const PlanMemory& memory, PluginHost& plugins, const Announce& others);

  const Assembly& assembly_;
  std::optional<LoadedCheckpoint> loaded_;
  std::unique_ptr<StartValues> weights_;
  std::string base_;
  Progress progress_;
};

}  // namespace prun
