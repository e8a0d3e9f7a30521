// Checks whether a plugin file may be run: only root and the user may be able to change it or put another in
// its place.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/durable_file.hpp"

namespace prun {

// Holds open a file that passed. Read its note and its digest through `descriptor`, load it by `path`, and
// call check_same_file() afterwards.
struct TrustedFile {
  FileDescriptor descriptor;
  std::filesystem::path path;  // canonical path
  dev_t device = 0;
  ino_t inode = 0;
  std::vector<std::string> warnings;  // sentences on what the group may write to
};

// Throws bad_input if the file or any folder above it can be written by all or by a foreign group, sticky
// folders excepted, or belongs to a user who is neither root nor the effective user. Symbolic links are
// followed; the folders that hold them are judged too. Throws not_found if there is no such file.
TrustedFile open_trusted(const std::filesystem::path& path);

// Throws bad_input unless `path` still is the file that was checked.
void check_same_file(const TrustedFile& file, const std::filesystem::path& path);

// Says why a file or folder with these attributes must not be trusted by `user`, whose own group is `group`;
// the text is empty if it may.
std::string distrust(const struct stat& info, uid_t user, gid_t group);

}  // namespace prun
