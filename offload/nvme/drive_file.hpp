// Keeps bytes of a process on one drive, in a file. It has no name: it is gone with the process, however that
// ends, and no other process can open it. All of it is written once before it is used, so that no later
// transfer finds the drive full or makes the file system search for room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace prun::nvme {

// Transfers begin at multiples of this and have such lengths; memory they reach directly is aligned to it.
inline constexpr std::int64_t block = 4096;

class DriveFile {
 public:
  // Throws if the folder has no room for `bytes`. `direct` bypasses the system's cache of files, if the file
  // system can.
  DriveFile(std::filesystem::path folder, std::int64_t bytes, bool direct);
  ~DriveFile();
  DriveFile(const DriveFile&) = delete;
  DriveFile& operator=(const DriveFile&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  int descriptor() const { return descriptor_; }
  bool is_direct() const { return direct_; }
  // Returns the rate at which all of it was written, in bytes a second.
  double first_rate() const { return first_rate_; }

 private:
  void open(bool direct);
  void check_room(std::int64_t bytes) const;
  void fill(std::int64_t bytes);

  std::filesystem::path folder_;
  int descriptor_ = -1;
  bool direct_ = false;
  double first_rate_ = 0;
};

// Returns the bytes that a process may put into files of a folder. Throws if there is no such folder.
std::int64_t room_in(const std::filesystem::path& folder);
// Returns the bytes that one of `ranks` may have in files of these folders, as many in each; it has `own` of
// them there already.
std::int64_t room_in_all(std::span<const std::filesystem::path> folders, std::int64_t ranks,
                         std::int64_t own);

}  // namespace prun::nvme
