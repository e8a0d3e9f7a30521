// Holds a checkpoint while ranks write their files of it: in a folder that no one else sees, which the first
// rank puts in place once all are there.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace prun {

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

}  // namespace prun
