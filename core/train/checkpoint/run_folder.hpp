// Finds where a run writes, and ensures that it is alone there.
//
// While a run works its folder holds `run.lock`, which names it. The system's lock on that file is released
// however the process ends; the file's text states the reason, and decides where the file system has no locks
// or the run was another host's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file_system.hpp"
#include "base/unfinished.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Returns run.out, or runs/NAME.
std::filesystem::path run_folder(const Recipe& recipe);

void make_folder(const std::filesystem::path& folder);

// Throws bad_input where the run's folder cannot be made or written. Makes nothing.
void check_run_folder(const Recipe& recipe);

// Describes the run that works in a folder, as its lock shows it to a reader.
struct RunHolder {
  std::string run, host;
  std::int64_t pid = 0;  // of the launcher or, where there is none, of the first rank
  bool here = false;     // on this host, where it can be asked
  bool alive = false;    // as far as it can be asked
};
// Nothing where no run has left its lock there; a command that has it is no run.
std::optional<RunHolder> holder_of(const std::filesystem::path& folder);

// Holds the right to write there, until the end. Throws bad_input where a name that prun writes under leads
// to a file elsewhere.
class RunClaim {
 public:
  // Makes the folder. Throws bad_input when another run works in it, or when it holds one that run.resume
  // does not continue; with run.fresh that one is moved aside.
  explicit RunClaim(const Recipe& recipe);
  // Of a command that changes the folder of a run, which must be there: no run works in it meanwhile, and
  // another such command waits. Throws bad_input when a run does.
  RunClaim(const std::filesystem::path& folder, const std::string& command);
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

  // Where the run that was in the folder is now, if it was moved.
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

 private:
  FileDescriptor folder_, lock_;
  std::optional<RemovedAtEnd> lock_file_;
  std::optional<std::filesystem::path> moved_to_;
};

// Ensures that a folder stays in its place.
class FolderInPlace {
 public:
  explicit FolderInPlace(std::filesystem::path folder);
  // Throws storage when it was removed, moved or replaced since.
  void check() const;

 private:
  std::filesystem::path path_;
  FileDescriptor folder_;
};

}  // namespace prun
