// Finds where a run writes, and ensures that it is alone there.
//
// While a run works its folder holds `run.lock`, which names it. The system's lock on that file is released
// however the process ends; the file's text states the reason, and decides where the file system has no locks
// or the run was another host's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/durable_file.hpp"
#include "base/file_system.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Returns run.out, or runs/NAME.
std::filesystem::path run_folder(const Recipe& recipe);

void make_folder(const std::filesystem::path& folder);

// Returns the folder, or the nearest above it that there is.
std::filesystem::path existing_folder(const std::filesystem::path& folder);

// Returns the bytes that this user may still write to the drive that has the folder, or will have it.
std::int64_t free_bytes(const std::filesystem::path& folder);

// Throws bad_input if the run's folder cannot be made or written. It makes nothing.
void check_run_folder(const Recipe& recipe);

// Describes the run that works in a folder, as its lock shows it to a reader.
struct RunHolder {
  std::string run, host;
  std::int64_t pid = 0;  // pid of the launcher or, without one, of the first rank
  bool here = false;     // whether it is on this host, so that it can be checked
  bool alive = false;    // whether it runs, as far as that can be checked
};
// Returns nothing if no run has left its lock there; a command that holds the lock is no run.
std::optional<RunHolder> holder_of(const std::filesystem::path& folder);

// Holds the right to write there, until the end. Throws bad_input if a name that prun writes under leads to a
// file elsewhere.
class RunClaim {
 public:
  // Makes the folder. Throws bad_input when another run works in it, or when it holds one that run.resume
  // does not continue; with run.fresh that one is moved aside.
  explicit RunClaim(const Recipe& recipe);
  // Claims the folder of a run, which must be there, for a command that changes it: no run works in it
  // meanwhile, and another such command waits. Throws bad_input if a run does.
  RunClaim(const std::filesystem::path& folder, const std::string& command);
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

  // Returns where the run that was in the folder is now, if it was moved.
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
  // Throws storage if the folder was removed, moved or replaced since.
  void check() const;

 private:
  std::filesystem::path path_;
  FileDescriptor folder_;
};

}  // namespace prun
