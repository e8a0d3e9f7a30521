// Writes files and folders that appear whole or not at all, and survive a power loss once commit() returned:
// they are written under a temporary name beside the target, synced and renamed, and the parent folder is
// synced. Every step is checked; errors throw ErrorCode::storage with the path, the system's reason and a
// remedy, and the temporary is removed. A failed sync is never tried again: the system may have dropped the
// data. A process that limits file sizes must ignore SIGXFSZ to get an error instead of being killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file_system.hpp"
#include "base/unfinished.hpp"
#include "prun/error.hpp"

namespace prun {

// Writes a file. Without commit() the target stays as it was.
class DurableFile {
 public:
  // Begins a file. The folder must exist; a file at `target` is replaced at commit().
  explicit DurableFile(std::filesystem::path target);

  // Writes to the system at once: write large pieces. After an error the file cannot be committed any more.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Makes the file so long, with room on the disk for it, if its file system can.
  void reserve(std::int64_t bytes);
  // Writes from byte `offset` on, over what is there, or beyond the end.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::string_view text) {
    write_at(offset, std::as_bytes(std::span(text)));
  }

  // Syncs, closes, renames and syncs the folder. If only the last step fails, the target is already replaced
  // (whole), but a power loss may still bring the old one back.
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  void expect_usable() const;

  std::filesystem::path target_;
  Unfinished written_;
  bool failed_ = false;
};

// Replaces `target`, or the file that a link leads to, by `text`, whole or not at all. What is no file (a
// pipe, /dev/null, a terminal, prun's standard output) is written into as it stands; a disk is refused.
void replace_text_file(const std::filesystem::path& target, std::string_view text);

// Says whether prun's standard output or standard error goes there.
bool is_standard_stream(const std::filesystem::path& target);

// Puts `text` in place of any file or link of that name, whole or not at all.
void put_text_file(const std::filesystem::path& target, std::string_view text);

// Says what happens to a folder that is at the target already.
enum class Existing { refuse, replace };

// Fills a folder, such as one checkpoint. Without commit() nothing appears at the target, or what was there
// stays.
class DurableFolder {
 public:
  // Begins a folder. The parent must exist. Throws bad_input if something is there that is not to be
  // replaced. It removes what dead processes have left of the same target.
  explicit DurableFolder(std::filesystem::path target, Existing existing = Existing::refuse);

  // Returns the folder to put files and folders in, by any means and from any process; close them before
  // commit().
  const std::filesystem::path& staging() const { return staging_.path(); }
  const std::filesystem::path& target() const { return target_; }

  // Syncs every file and folder inside, renames, syncs the parent. Refuses unfinished files inside. A folder
  // that is replaced trades places with the new one in one step, and is removed then. Some file systems
  // cannot do that: there it stands aside for a moment, where read_latest() finds it if this process ends.
  void commit();
  // Does commit(), then makes the parent's `latest` name this folder.
  void commit_as_latest();

 private:
  void replace();

  std::filesystem::path target_;
  Existing existing_;
  Unfinished staging_;
};

// Removes a folder and all that is in it; if this process ends meanwhile, what is left has a temporary name.
// A folder that is gone already is no error.
void remove_folder(const std::filesystem::path& folder);

// Removes what dead processes have left in `folder`: their unfinished files and folders, and folders that
// stood aside for another, which come back if there is none.
void clear_dead_saves(const std::filesystem::path& folder);

// Returns what is in a short text file, or nothing if there is none. Throws bad_input for what is not a file.
std::optional<std::string> read_short_file(const std::filesystem::path& path);

// Makes the text file `parent`/latest name the folder `parent`/`name`, which must exist.
void set_latest(const std::filesystem::path& parent, const std::string& name);

// Returns the folder that `parent`/latest names, or nothing if there is no such file. Throws bad_input if it
// is not as set_latest() wrote it or names something else than a folder, not_found if that is missing.
std::optional<std::filesystem::path> read_latest(const std::filesystem::path& parent);

}  // namespace prun
